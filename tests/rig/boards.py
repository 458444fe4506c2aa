"""Boards as trees of files: each is one text in tests/trees, unfolded into a folder.

A line of the text is one of

    PATH = TEXT                     a file with that line (in the device tree: with a NUL at its end)
    PATH <<                         a file with the indented lines that follow
    PATH -> TARGET                  a link
    PATH USER:GROUP MODE            a device node: its owner is told by `TreeEdge`
    @class CLASS NAME PARENT KEY=VALUE...   /sys/class/CLASS/NAME of the device /sys/devices/PARENT (KEY: its files)
    @bus BUS NAME PARENT KEY=VALUE...       /sys/bus/BUS/devices/NAME below /sys/devices/PARENT
    @answers BUS ADDRESS...         what answers on an I2C bus
    @user UID GID...                who is scanning

`driver=NAME` is a link to a driver, of the device (@class) or of the thing itself (@bus).
"""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path

import msgspec

from edgepanda.model.hardware import Hardware
from edgepanda.node.scan import Owner, User
from edgepanda.node.scan.edge import Still

TREES = Path(__file__).parents[1] / "trees"
BOARDS = ("pi3bplus", "pi4b", "pi5", "zero2w", "rock4cplus", "pc")
GROUPS = {"root": 0, "tty": 5, "dialout": 20, "audio": 29, "video": 44, "gpio": 986, "i2c": 987, "spi": 988}


class TreeEdge(Still):
    """What the text says of owners, of us, and of what answers."""

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self.answers: dict[str, list[int]] = {}
        self.me = User(1000, frozenset({1000, *GROUPS.values()} - {0}), 4000)

    def owner(self, path: Path) -> Owner | None:
        for name, owner in self.owners.items():
            if str(path).endswith(f"/{name}"):
                return owner
        return super().owner(path)

    def user(self) -> User:
        return self.me

    def i2c_answers(self, path: Path, skip: frozenset[int]) -> list[int]:
        assert not skip & set(self.answers.get(path.name, []))
        return self.answers.get(path.name, [])


class Unfolded:
    """A board's tree in a folder."""

    def __init__(self, text: str, root: Path) -> None:
        self.root, self.edge = root, TreeEdge()
        lines = [*text.splitlines(), ""]
        while lines:
            line = lines.pop(0)
            if line.endswith(" <<"):
                block = []
                while lines[0].startswith("    ") or (not lines[0] and lines[1:] and lines[1].startswith("    ")):
                    block.append(lines.pop(0)[4:])
                self._file(line.removesuffix(" <<"), "\n".join(block) + "\n")
            elif line and not line.startswith("#"):
                self._line(line)
        self._file("etc/group", "".join(f"{name}:x:{gid}:\n" for name, gid in GROUPS.items()))

    def _line(self, line: str) -> None:
        if line.startswith("@"):
            word, *words = shlex.split(line)
            getattr(self, f"_at_{word[1:]}")(*words)
        elif " -> " in line:
            self._link(*line.split(" -> "))
        elif " = " in line:
            name, _, text = line.partition(" = ")
            self._file(name, text + ("\0" if "devicetree" in name else "\n"))
        else:
            name, owner, mode = line.split()
            user, _, group = owner.partition(":")
            self._file(name, "")
            self.edge.owners[name] = Owner(GROUPS.get(user, 1000), GROUPS[group], int(mode, 8))

    def _file(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def _at_class(self, kind: str, name: str, parent: str, *pairs: str) -> None:
        device = f"sys/devices/{parent}"
        here = f"{device}/{kind}/{name}"
        (self.root / here).mkdir(parents=True)
        self._attributes(here, [pair for pair in pairs if not pair.startswith("driver=")])
        self._attributes(device, [pair for pair in pairs if pair.startswith("driver=")])
        self._link(f"{here}/device", f"../../../{Path(parent).name}")
        self._link(f"sys/class/{kind}/{name}", f"../../../{here}")

    def _at_bus(self, bus: str, name: str, parent: str, *pairs: str) -> None:
        here = f"sys/devices/{parent}/{name}"
        (self.root / here).mkdir(parents=True, exist_ok=True)
        self._attributes(here, list(pairs))
        self._link(f"sys/bus/{bus}/devices/{name}", f"../../../../{here}")

    def _attributes(self, folder: str, pairs: list[str]) -> None:
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key != "driver":
                self._file(f"{folder}/{key}", value + "\n")
            elif not os.path.lexists(self.root / folder / "driver"):
                (self.root / "sys/drivers" / value).mkdir(parents=True, exist_ok=True)
                self._link(f"{folder}/driver", os.path.relpath(self.root / "sys/drivers" / value, self.root / folder))

    def _at_answers(self, bus: str, *addresses: str) -> None:
        self.edge.answers[bus] = [int(address, 16) for address in addresses]

    def _at_user(self, uid: str, *gids: str) -> None:
        self.edge.me = User(int(uid), frozenset(int(gid) for gid in gids), 4000)


def unfold(board: str, root: Path) -> Unfolded:
    """A board's tree in that folder, which must be empty."""
    return Unfolded((TREES / f"{board}.txt").read_text(), root)


def documented(board: str) -> Hardware:
    """What that board's documents say that a scan must find."""
    return msgspec.convert(tomllib.loads((TREES / f"{board}.toml").read_text()), Hardware)
