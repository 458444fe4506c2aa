"""The work directory of one attempt of a command, and what its files say about how far it is.

`inputs/manifest.json`, `outputs/`, `result.json`, `stdout.log`, `stderr.log` are the user's; `.run/` holds the records:
`started.json` (before anything runs), `spec.json`, `lock`, `pids.json`, `exit.json`, and the output's segments.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgepanda.drivers.command_result import Ending, Finished
from edgepanda.drivers.contract import DriverError
from edgepanda.drivers.process import PidRecord, boot_id, read_record, send_signal, sync_folder, write_json

RESULT_LIMIT = 256 * 1024
TAIL = 2048
MAX_OUTPUTS = 1000

Stage = Literal["new", "running", "finished", "interrupted"]


class Attempt:
    """One attempt by its work directory."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.run = work / ".run"

    def stage(self) -> Stage:
        """How far the attempt is. The lock says whether its supervisor lives: it holds it from before its start."""
        if not (self.run / "started.json").exists():
            return "new"
        if self._locked():
            return "running"
        return "finished" if (self.run / "exit.json").exists() else "interrupted"

    def start(self, spec: dict[str, Any], manifest: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Marks the attempt as begun, durably, then starts its supervisor in a session of its own.

        Raises:
            DriverError: `io` when the work directory cannot be written; `busy` when it is being started already.
        """
        try:
            for folder in (self.work, self.work / "inputs", self.work / "outputs", self.run):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DriverError(
                f"the work directory cannot be made: {error.strerror}", where=str(error.filename)
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_json(self.work / "inputs" / "manifest.json", manifest, sync=False)
            write_json(self.run / "spec.json", spec, sync=False)
            sync_folder(self.work)
            write_json(self.run / "started.json", {"boot": boot_id()})
            return self._spawn(lock)
        except BlockingIOError as error:
            raise DriverError("this attempt is being started already", code="busy", where=str(self.work)) from error
        except OSError as error:
            raise DriverError(f"the command cannot be prepared: {error}", where=str(self.work)) from error
        finally:
            os.close(lock)

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        with (self.run / "supervisor.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-m", "edgepanda.drivers.command_supervisor", str(self.work)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                cwd="/",
            )

    def supervisor(self) -> PidRecord | None:
        """The supervisor's record, once it has written it."""
        return read_record(self.run / "pids.json")

    def kill_rest(self) -> None:
        """Kills the command of a supervisor that is gone: nobody would enforce its time-out or see its end."""
        group = read_record(self.run / "pids.json", "group")
        if group is not None:
            send_signal(group, signal.SIGKILL, group=True)

    def finished(self) -> Finished:
        """What the attempt left.

        Raises:
            DriverError: `io` when its record cannot be read.
        """
        try:
            ending = msgspec.json.decode((self.run / "exit.json").read_bytes(), type=Ending)
        except (OSError, msgspec.MsgspecError) as error:
            raise DriverError(
                f"the record of the command's end cannot be read: {error}", where=str(self.run)
            ) from error
        tails = {stream: self._tail(stream) for stream in ("stdout", "stderr")}
        return Finished(ending, self._result(), self._outputs(), tails)

    def _locked(self) -> bool:
        try:
            lock = os.open(self.run / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _result(self) -> bytes | None:
        """`result.json` if it is a regular file of a sensible size; anything else reads as malformed."""
        try:
            descriptor = os.open(self.work / "result.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > RESULT_LIMIT:
                return b""
            return file.read()

    def _outputs(self) -> dict[str, int]:
        """Regular files below `outputs/` with their sizes; links are not followed."""
        root = self.work / "outputs"
        found: dict[str, int] = {}
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                path = Path(folder, name)
                info = path.lstat()
                if stat.S_ISREG(info.st_mode) and len(found) < MAX_OUTPUTS:
                    found[path.relative_to(root).as_posix()] = info.st_size
        return found

    def _tail(self, stream: str) -> str:
        with contextlib.suppress(OSError), (self.work / f"{stream}.log").open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL))
            return file.read().decode(errors="replace")
        return ""


class Registry:
    """The work directories of a capability's running commands, so that a fresh host can end them too."""

    def __init__(self, run_dir: Path, device: str) -> None:
        self._folder = run_dir / "commands" / device.replace("/", "_")

    def add(self, work: Path) -> Path:
        """Remembers a work directory; gives the file to remove when it is done."""
        self._folder.mkdir(parents=True, exist_ok=True)
        info = work.stat()
        entry = self._folder / f"{info.st_dev}-{info.st_ino}.json"
        write_json(entry, {"work": str(work)}, sync=False)
        return entry

    def running(self) -> list[Attempt]:
        """The attempts that still run; entries of others are removed."""
        attempts = []
        for entry in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                attempt = Attempt(Path(json.loads(entry.read_text())["work"]))
                if attempt.stage() == "running":
                    attempts.append(attempt)
                    continue
            entry.unlink(missing_ok=True)
        return attempts
