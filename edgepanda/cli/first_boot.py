"""A configuration that lies on the boot partition is taken over, and what came of it is left beside it.

For a machine without screen and keyboard: somebody writes `edgepanda.toml` on the card from another computer, and reads
the outcome there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from edgepanda.errors import EdgePandaError
from edgepanda.storage import from_os_error, make_folder, replace_file

BOOT_FILE = Path("/boot/firmware/edgepanda.toml")
OUTCOME = "edgepanda-outcome.txt"
LARGEST = 1 << 20  # bytes: more is no configuration


def take(source: Path, target: Path) -> list[str]:
    """Check the file and put it in the place of the configuration, whose old text is kept as `NAME.before`.

    Gives what was made. The source stays until `finish`, so a power cut on the way makes the next boot do it again.
    Raises `EdgePandaError`: what a configuration and a storage can be refused for.
    """
    from edgepanda.model.config import load_config

    text = _read(source)
    load_config(source)
    made: list[str] = []
    make_folder(target.parent)
    if target.exists():
        before = _read(target)
        if before == text:
            return made
        kept = target.with_name(target.name + ".before")
        replace_file(kept, before)
        made.append(f"{kept}: the configuration that was here before")
    replace_file(target, text)
    return [f"{target}: the configuration, from {source}", *made]


def finish(source: Path, lines: list[str]) -> None:
    """Leave the outcome of a success, and take the source away: others can read that partition, and it may hold a
    password. Raises `EdgePandaError` (`storage_readonly` and others).
    """
    leave(source, ["EdgePanda took this over. The file is gone from here, since it may hold a password.", "", *lines])
    try:
        source.unlink()
    except OSError as error:
        raise from_os_error(error, source, "remove the file that was taken over") from error


def fail(source: Path, error: EdgePandaError) -> None:
    """Leave the reason beside the file. Where even that cannot be written, the caller's error must do."""
    lines = [f"EdgePanda could not use {source.name}. Correct it and start the machine again.", ""]
    lines += [str(error), "", f"code: {error.code}"]
    with contextlib.suppress(EdgePandaError):
        leave(source, lines)


def leave(source: Path, lines: list[str]) -> None:
    """Write the outcome, whole or not at all, with line ends that any computer shows."""
    replace_file(source.with_name(OUTCOME), "".join(f"{line}\r\n" for line in lines).encode())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise EdgePandaError(
            "there is no such file", code="config_missing", where=str(path), cure="write one, or leave --from away"
        ) from error
    except OSError as error:
        raise from_os_error(error, path, "read the configuration") from error
    if len(text) > LARGEST:
        raise EdgePandaError(
            f"more than {LARGEST} bytes", code="config_invalid", where=str(path), cure="this is no configuration"
        )
    return text
