"""A machine to try documents on: processes, network, host name and boot id of its own, in Linux namespaces.

    with Machine("pi1", folder) as machine:
        terminal = machine.terminal()
        terminal.type("echo hello")
        machine.cut_power()
        machine.boot()    # the same disk, nothing else

`Machine(..., beside=machine)` is another one that a cable can join to it (`join`).

Needs no root: user namespaces are enough. The disk is the test's own folder beside the real one's files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple, Self

from tests.rig.running import Running

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds for one command
NAMESPACES = ("--user", "--net", "--uts", "--ipc", "--mount", "--pid")
PATH = "/usr/local/bin:/usr/bin:/bin"
_MARK = "--end-of-command--"


class Done(NamedTuple):
    """What a command came to: its exit code and all that it printed."""

    code: int
    text: str


class Terminal:
    """A shell that somebody types into, one command after the other; variables and folder stay."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._shell = machine.start(["bash", "--norc", "--noprofile"], typed=True)
        self._file = machine.notes / f"typed-{uuid.uuid4().hex}"

    def type(self, text: str) -> Done:
        """Run the text as it stands, without anything on its standard input, to its end."""
        self._file.write_text(text)
        seen = len(self._shell.lines)
        stdin = self._shell.process.stdin
        assert stdin is not None
        file = self._machine.inside(self._file)
        stdin.write(f". '{file}' </dev/null; __code=$?; printf '\\n%s %s\\n' {_MARK} $__code; (exit $__code)\n")
        stdin.flush()
        mark = self._shell.wait_for(f"^{_MARK} ", after=seen, within=self._machine.patience)
        lines = self._shell.lines[seen : self._shell.lines.index(mark, seen)]
        return Done(int(mark.split()[1]), "\n".join(lines).rstrip("\n"))


class Machine:
    """Off until `boot`; `folder` holds its home, and in there the clone that the documents begin with."""

    patience = PATIENCE

    def __init__(self, name: str, folder: Path, *, beside: Machine | None = None) -> None:
        self.name, self.folder, self.path, self.beside = name, folder, PATH, beside
        self.home = folder / "home"
        self.clone = self.home / "edgepanda"
        self.notes = folder / "tmp"
        self.clone.mkdir(parents=True)
        (folder / "tmp").mkdir()
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
        self.begin()

    def begin(self) -> None:
        """Nothing runs yet."""
        self._holder: subprocess.Popen[str] | None = None
        self.first = 0  # the machine's first process, as its pid is out here
        self._started: list[Running] = []

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the developer's own."""
        own = {"HOME": self.inside(self.home), "TMPDIR": self.inside(self.folder / "tmp"), "PATH": self.path}
        return {**own, "TERM": "dumb", "LANG": "C.UTF-8", "LOGNAME": "panda", "USER": "panda"}

    def inside(self, path: Path) -> str:
        """The path as the machine's own processes see it."""
        return str(path)

    def boot_words(self) -> list[str]:
        """What runs the machine's first process, which says `up`; all others end with it."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        files = [str(self.folder / "hosts"), str(self.folder / "boot_id")]
        boot = [sys.executable, str(Path(__file__).with_name("machine_boot.py")), self.name, *files]
        users = ["unshare", "--user", "--map-root-user"]
        if self.beside is not None:  # only who has the same users may lay a cable between the two
            users = ["nsenter", "--target", str(self.beside.first), "--user", "--preserve-credentials", "unshare"]
        return [*users, *NAMESPACES[1:], "--fork", "--kill-child", "--mount-proc", *boot]

    def enter_words(self, first: int) -> list[str]:
        """What runs a further process beside the first one, whose pid is given as it is out here."""
        return ["nsenter", "--target", str(first), *NAMESPACES, "--preserve-credentials", "--"]

    def boot(self) -> None:
        """Power on. Raises AssertionError with the reason where this system cannot."""
        holder = subprocess.Popen(
            self.boot_words(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._holder = holder
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "up\n":
            holder.kill()
            raise AssertionError(f"no machine of our own here: {holder.stderr.read()}")
        self.first = _children(holder.pid)[0]

    def cut_power(self) -> None:
        """Every process of it ends at once; what is on the disk stays."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        holder.kill()
        holder.communicate()
        for running in self._started:
            running.process.wait(PATIENCE)
            running.end()
            if running.process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    running.process.stdin.close()
            assert running.process.stdout is not None
            running.process.stdout.close()
        self._started.clear()

    def network_words(self) -> list[str]:
        """What runs a program of this system in the machine's network."""
        return ["nsenter", "--target", str(self.first), "--net", "--user", "--preserve-credentials", "--"]

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut_power()

    def terminal(self) -> Terminal:
        """A new one, in the clone's folder."""
        return Terminal(self)

    def start(self, words: list[str], *, typed: bool = False, where: Path | None = None) -> Running:
        """A process of the machine that goes on, in the clone's folder; `typed`: its standard input is open."""
        enter = self.enter_words(self.first)
        change = ["sh", "-c", 'cd "$0" && exec "$@"', self.inside(where or self.clone)]
        process = subprocess.Popen(
            [*enter, *change, *words],
            env=self.environment,
            stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(Running(process))
        return self._started[-1]

    def interrupt(self, running: Running) -> int:
        """Ctrl-C where it runs: SIGINT to the terminal's processes; the exit code."""
        for pid in _group(running.process.pid):
            if pid != running.process.pid:  # nsenter hands the exit code on, and would not survive
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
        return running.process.wait(PATIENCE)

    def lay_out_clone(self) -> None:
        """What `git clone` gives and ./install.sh adds, without a network: packages are lent by this environment."""
        for name in ("install.sh", "setup.cfg"):
            shutil.copy(ROOT / name, self.clone / name)
        environment = self.clone / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE)
        (site,) = environment.glob("lib/python*/site-packages")
        lent = [path for path in sys.path if path.endswith("-packages")]
        (site / "lent.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in lent))
        command = environment / "bin/edgepanda"
        command.write_text(
            f"#!{environment}/bin/python\nimport sys\nfrom edgepanda.cli import main\nsys.exit(main())\n"
        )
        command.chmod(0o755)
        with (ROOT / "setup.cfg").open() as file:
            told = subprocess.run(["cksum"], stdin=file, capture_output=True, text=True, check=True).stdout
        digest = "-".join(told.split())
        version = " ".join(map(str, sys.version_info[:3]))
        goals = "".join(f"{goal} {digest}\n" for goal in ("demo", "up"))
        (environment / "edgepanda-setup").write_text(f"{self.clone}, Python {version}\n{goals}")


def join(*machines: Machine) -> None:
    """A cable between two machines that are on: addresses 192.168.77.1 and 192.168.77.2."""
    one, other = machines
    lay = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(other.first)]
    subprocess.run([*one.network_words(), *lay], check=True)
    for number, machine in enumerate(machines, 1):
        for words in (f"addr add 192.168.77.{number}/24 dev eth0", "link set eth0 up", "route add default dev eth0"):
            subprocess.run([*machine.network_words(), "ip", *words.split()], check=True)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _group(leader: int) -> list[int]:
    """Processes of a session's first group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == leader:
                    found.append(int(entry.name))
    return found
