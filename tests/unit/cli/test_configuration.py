"""The commented configuration: what `init` writes, what config/ holds, and that nothing is forgotten in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepanda.cli.init_file import render
from edgepanda.cli.up import planned
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded, load_config
from edgepanda.model.config_types import TABLES
from edgepanda.model.config_words import allowed, fields_of, toml

ROOT = Path(__file__).parents[3]
TEXT = render(site="home", site_key="", broker="", node="desk")
KEY = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def loaded(tmp_path: Path, text: str) -> Loaded:
    path = tmp_path / "edgepanda.toml"
    path.write_text(text)
    return load_config(path)


def test_the_file_in_config_is_what_init_writes() -> None:
    assert (ROOT / "config/edgepanda.toml").read_text() == TEXT


def test_it_is_a_configuration_and_starts_everything(tmp_path: Path) -> None:
    assert planned(loaded(tmp_path, TEXT)) == ["broker", "coordinator", "node"]


def test_every_key_stands_in_it_with_its_default(tmp_path: Path) -> None:
    """Each line `# key = default` may be uncommented without changing anything."""
    plain = TEXT
    for kind in TABLES.values():
        for field in fields_of(kind).values():
            line = f"{field.name} = {toml(field.default)}\n"
            assert f"\n{field.name} = " in TEXT or f"\n# {line}" in TEXT, f"{kind.__name__}.{field.name}"
            assert f"default {toml(field.default)}" in TEXT
            plain = plain.replace(f"\n# {line}", f"\n{line}")
    before, after = loaded(tmp_path, TEXT), loaded(tmp_path, plain.replace("# state_dir", "state_dir"))
    assert plain.count("\n# ") < TEXT.count("\n# ") - 12
    assert after == before


def test_every_key_says_what_is_allowed_and_whether_it_needs_a_restart() -> None:
    lines = TEXT[: TEXT.index("[devices.pan]")].splitlines()
    for field in (field for kind in TABLES.values() for field in fields_of(kind).values()):
        at = next(n for n, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{field.name} = "))
        told = " ".join(line.removeprefix("# ") for line in lines[max(0, at - 6) : at])
        assert f"[{allowed(field)}; default " in told
        assert told.endswith("; restart]") == field.restart


def test_the_commented_capability_is_right(tmp_path: Path) -> None:
    tail = TEXT[TEXT.index('# [capabilities."disk.free"]') :].replace("# ", "")
    assert loaded(tmp_path, f"[node]\n{tail}").config.capabilities["disk.free"]["tier"] == 0


def test_a_second_machine_runs_only_a_node(tmp_path: Path) -> None:
    text = render(site="home", site_key=KEY, broker="mqtt://broker.lan", node="shed")
    found = loaded(tmp_path, text)
    assert planned(found) == ["node"]
    assert found.config.site.key == KEY


@pytest.mark.parametrize("path", sorted((ROOT / "config/examples").glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_can_be_used(path: Path) -> None:
    assert planned(load_config(path))


def test_nothing_to_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(EdgePandaError, match="nothing to start"):
        planned(loaded(tmp_path, ""))


def test_processes_that_run_together_need_a_port_that_they_know(tmp_path: Path) -> None:
    with pytest.raises(EdgePandaError, match="port 0") as caught:
        planned(loaded(tmp_path, '[broker]\nlisten = "127.0.0.1:0"\n[node]\n'))
    assert caught.value.where.endswith("broker.listen")


@pytest.mark.parametrize(
    ("listen", "found"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:1884", ("::1", 1884)), ("localhost", ("localhost", 1883))],
)
def test_where_the_embedded_broker_listens(listen: str, found: tuple[str, int], tmp_path: Path) -> None:
    assert loaded(tmp_path, f'[broker]\nlisten = "{listen}"').listen_address() == found


@pytest.mark.parametrize("listen", ["", ":1883", "127.0.0.1:x", "127.0.0.1:99999", "mqtt://127.0.0.1", "a@b:1"])
def test_a_wrong_address_names_file_and_key(listen: str, tmp_path: Path) -> None:
    with pytest.raises(EdgePandaError) as caught:
        loaded(tmp_path, f'[broker]\nlisten = "{listen}"')
    assert caught.value.code == "config_invalid"
    assert caught.value.where.endswith("edgepanda.toml:2: broker.listen")


@pytest.mark.parametrize(
    ("text", "where", "told"),
    [
        ("[nodes]", "nodes", "did you mean 'node'?"),
        ("[node]\nnmae = 'x'", "node.nmae", "did you mean 'name'?"),
        ("[broker]\nzzz = 1", "broker.zzz", "allowed is url, user"),
        ("[node]\nbeat = 'fast'", "node.beat", 'found "fast", allowed is a number from 0.1 to 60 (s)'),
        ("[node]\nlabels = {a = 1}", "node.labels.a", "found 1, allowed is text"),
        ("node = 3", "node", "found 3, allowed is a table [node]"),
    ],
)
def test_a_slip_of_the_keyboard_is_shown_with_its_place(text: str, where: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(EdgePandaError) as caught:
        loaded(tmp_path, text)
    assert caught.value.code == "config_invalid"
    assert caught.value.where == f"{tmp_path / 'edgepanda.toml'}:{len(text.splitlines())}: {where}"
    assert told in str(caught.value)
    assert caught.value.cure
