"""Which keys differ between two configurations, and which of them a running process takes up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from edgepanda.model.config import Loaded
from edgepanda.model.config_types import ENTRIES, TABLES
from edgepanda.model.config_words import Field, dotted, fields_of


class Changes(msgspec.Struct, frozen=True):
    """The keys that differ, dotted. A whole table that came or went is one key, and so is a device."""

    taken: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def changes(old: Loaded, new: Loaded, tables: Iterable[str]) -> Changes:
    """What differs for a process that reads these tables, apart from `state_dir`, which all read."""
    found = list(_differ(old, new, tuple(tables)))
    taken = tuple(name for name, restart in found if not restart)
    return Changes(taken, tuple(name for name, restart in found if restart))


def taken_up(old: Loaded, new: Loaded, tables: Iterable[str]) -> Loaded:
    """What is in effect after a process that ran with `old` has read `new`: what needs a restart is as it was."""
    config = old.config
    for table in tables:
        before, after = getattr(config, table), getattr(new.config, table)
        if table in ENTRIES:
            value = after
        elif before is None or after is None:
            continue
        else:
            live = {
                field.name: getattr(after, field.name) for field in _keys(table, before, after) if not field.restart
            }
            value = msgspec.structs.replace(before, **live)
        config = msgspec.structs.replace(config, **{table: value})
    return msgspec.structs.replace(old, config=config)


def _differ(old: Loaded, new: Loaded, tables: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    if old.state_dir != new.state_dir:
        yield "state_dir", True
    for table in tables:
        before, after = getattr(old.config, table), getattr(new.config, table)
        if before == after:
            continue
        if table in ENTRIES:
            names = [*before, *(name for name in after if name not in before)]
            yield from ((dotted((table, name)), False) for name in names if before.get(name) != after.get(name))
        elif before is None or after is None:
            yield table, True
        else:
            yield from ((dotted((table, f.name)), f.restart) for f in _keys(table, before, after))


def _keys(table: str, before: msgspec.Struct, after: msgspec.Struct) -> Iterator[Field]:
    for name, field in fields_of(TABLES[table]).items():
        if getattr(before, name) != getattr(after, name):
            yield field
