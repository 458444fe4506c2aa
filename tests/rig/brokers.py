"""Real brokers for tests, faults and benchmarks: Mosquitto, and the embedded one in a process of its own.

    with Mosquitto() as broker:
        ... broker.url, broker.pid
        broker.kill()     # as a power cut would
        broker.restart()  # on the same port, with nothing kept

Each ends only the process that it started.
"""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Self

import msgspec

from edgepanda.model.broker import BrokerAddress, parse_broker
from tests.rig.certificates import Authority

PATIENCE = 10.0  # seconds within which a broker is up, or gone
MOST_PORTS = 20  # that are tried


class BrokerFailed(RuntimeError):
    """The broker did not come up; carries what it printed."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that the system says is free at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def has_ipv6() -> bool:
    """True if this machine has an IPv6 loopback."""
    try:
        return free_port("::1") > 0
    except OSError:
        return False


def mosquitto_program() -> str | None:
    """Debian keeps it where a user's PATH does not look."""
    return shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")


class Process:
    """A broker in a process of its own: a context manager."""

    ready_line = ""  # a line that holds this says that it is up
    scheme = "mqtt"

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = 0
        self.lines: collections.deque[str] = collections.deque(maxlen=1000)  # what it printed last
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    # for the broker at hand

    def command(self) -> list[str]:
        """The program and its arguments, for `self.port`."""
        raise NotImplementedError

    # for everybody

    @property
    def url(self) -> str:
        """Where clients find it, without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def address(self) -> BrokerAddress:
        """How clients reach it."""
        return parse_broker(self.url)

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> Self:
        """Up when this returns; another port is tried when somebody took the chosen one meanwhile."""
        for _ in range(MOST_PORTS):
            self.port = free_port(self.host)
            if self._launch():
                return self
            if "in use" not in "".join(self.lines):
                break
        raise BrokerFailed("".join(self.lines))

    def restart(self) -> Self:
        """End it if it runs, and start it again on the same port."""
        self.stop()
        if not self._launch():
            raise BrokerFailed("".join(self.lines))
        return self

    def kill(self) -> None:
        """As a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end (SIGTERM), and wait for that."""
        self._end(signal.SIGTERM)

    def suspend(self) -> None:
        """Stop it from doing anything while its sockets stay open, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()  # there is nothing that it would have to save

    def _launch(self) -> bool:
        self.lines.clear()
        process = subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        up, told = threading.Event(), threading.Event()
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process, up, told), daemon=True)
        self._reader.start()
        in_time = told.wait(PATIENCE)
        if not up.is_set():
            self.kill()
        if not in_time:
            raise BrokerFailed(f"nothing heard within {PATIENCE} s: {''.join(self.lines)}")
        return up.is_set()

    def _read(self, process: subprocess.Popen[str], up: threading.Event, told: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line)
            if self.ready_line in line:
                up.set()
                told.set()
        told.set()  # it ended

    def _end(self, sign: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        if not _told_to_end(process, sign):
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


class Mosquitto(Process):
    """Mosquitto with TCP_NODELAY and a configuration in a folder of its own.

    `users`: names and passwords; with them nobody else is let in. `acl`: lines of an access list. `authority`: speak
    TLS with a certificate of this authority for `certified` names. `options`: further lines of the configuration.
    """

    ready_line = " running"

    def __init__(
        self,
        host: str = "127.0.0.1",
        *,
        users: dict[str, str] | None = None,
        acl: str = "",
        authority: Authority | None = None,
        certified: tuple[str, ...] = ("localhost", "127.0.0.1"),
        options: str = "",
    ) -> None:
        super().__init__(host)
        self._users = users or {}
        self._acl = acl
        self._authority = authority
        self._certified = certified
        self._options = options
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.scheme = "mqtts" if authority else "mqtt"

    def command(self) -> list[str]:
        program = mosquitto_program()
        if program is None:
            raise BrokerFailed("there is no mosquitto; the Debian package is called mosquitto")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mosquitto-")
            self._write_files(Path(self._folder.name), program)
        folder = Path(self._folder.name)
        (folder / "mosquitto.conf").write_text("\n".join(self._lines(folder)) + "\n")
        return [program, "-c", str(folder / "mosquitto.conf")]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _lines(self, folder: Path) -> list[str]:
        lines = [
            f"listener {self.port} {self.host}",
            "" if "set_tcp_nodelay" in self._options else "set_tcp_nodelay true",
            "persistence false",
            "log_dest stderr",  # standard output would be buffered
            "log_type error",
            "log_type warning",
            "log_type information",
            f"allow_anonymous {'false' if self._users else 'true'}",
        ]
        if os.geteuid() == 0:
            lines.append("user root")  # else it gives up its rights and cannot read this folder
        if self._users:
            lines.append(f"password_file {folder / 'passwords'}")
        if self._acl:
            lines.append(f"acl_file {folder / 'acl'}")
        if self._authority is not None:
            lines += [f"cafile {folder / 'ca.pem'}", f"certfile {folder / 'cert.pem'}", f"keyfile {folder / 'key.pem'}"]
        return [*lines, self._options]

    def _write_files(self, folder: Path, program: str) -> None:
        _write_secret(folder / "acl", self._acl)
        if self._users:
            _write_secret(folder / "passwords", "")
            beside = Path(program).with_name("mosquitto_passwd")
            hasher = str(beside) if beside.exists() else "mosquitto_passwd"  # Debian: in /usr/bin
            for name, password in self._users.items():
                command = [hasher, "-b", str(folder / "passwords"), name, password]
                subprocess.run(command, check=True, capture_output=True)
        if self._authority is not None:
            certificate, key = self._authority.issue(self._certified)
            (folder / "ca.pem").write_text(self._authority.certificate)
            (folder / "cert.pem").write_text(certificate)
            _write_secret(folder / "key.pem", key)


class Embedded(Process):
    """The embedded broker of `edgepanda.services.broker`."""

    ready_line = "listens on port"

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("embedded_broker.py")), self.host, str(self.port)]


class Secured(Embedded):
    """The same with TLS and one user, `panda`; `address` has what a client needs."""

    scheme = "mqtts"
    PASSWORD = "s:e/c@r#t%41"  # noqa: S105 of tests; its hash is the weakest, which is quick
    HASH = "$argon2id$v=19$m=8,t=1,p=1$oYviwcSHnoQISo4LDxC4NQ$UdB/8/Eatkg9oHQSyhwuEpZ0NMcNQil0DrK2yVdwwtI"

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__(host)
        self._folder = tempfile.TemporaryDirectory(prefix="embedded-")
        authority = Authority()
        certificate, key = authority.issue(["localhost", "127.0.0.1", "::1"])
        users = f'[users.panda]\npassword = "{self.HASH}"\n'
        for name, text in (("ca", authority.certificate), ("cert", certificate), ("key", key)):
            _write_secret(self._path(f"{name}.pem"), text)
        _write_secret(self._path("users.toml"), users)

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    @property
    def address(self) -> BrokerAddress:
        secrets = {"username": "panda", "password": self.PASSWORD, "ca_file": str(self._path("ca.pem"))}
        return msgspec.structs.replace(super().address, **secrets)

    def command(self) -> list[str]:
        return [*super().command(), self._folder.name]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._folder.cleanup()


def _told_to_end(process: subprocess.Popen[str], sign: signal.Signals) -> bool:
    """Says it more than once: Mosquitto forgets a SIGTERM that comes just before its loop begins."""
    for _ in range(int(PATIENCE / 0.25)):
        process.send_signal(sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
            return True
    return False


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
