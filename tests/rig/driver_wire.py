"""A driver host as a raw process, for tests that say exactly which bytes it gets; and the drivers of the document."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing-a-driver.md"
PATIENCE = 10.0  # seconds for anything that has no tighter limit of its own; the machine may be busy


def from_document(name: str, folder: Path) -> Path:
    """Writes the code block that follows `<!-- name -->` in the document to a file of that name."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w+\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found, f"the document has no block {name}"
    path = folder / name
    path.write_text(found[1])
    return path


def python_host(driver: str, run_dir: Path) -> list[str]:
    """The arguments that start a host of a Python driver."""
    return [sys.executable, "-m", "edgepanda.drivers.host", driver, "--run-dir", str(run_dir)]


class Wire:
    """Starts a host and speaks lines with it; use as a context manager."""

    def __init__(self, argv: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
        self.heard: list[dict[str, Any]] = []
        self._part = b""
        self._next = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def write(self, data: bytes) -> None:
        """Writes bytes as they are."""
        assert self.process.stdin
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def send(self, method: str, **params: Any) -> int:
        """Sends a request and gives its id."""
        self._next += 1
        request = {"id": self._next, "method": method, "params": params, "jsonrpc": "2.0"}
        self.write(json.dumps(request, separators=(",", ":")).encode() + b"\n")
        return self._next

    def answer(self, request: int | None, within: float = PATIENCE) -> dict[str, Any]:
        """The answer to a request (None: to a line without a readable id); other lines are kept in `heard`."""
        return self.until(lambda m: "id" in m and m["id"] == request and "method" not in m, within)

    def until(self, wanted: Any, within: float = PATIENCE) -> dict[str, Any]:
        """The first message for which `wanted(message)` holds, from those heard already or to come."""
        end = time.monotonic() + within
        while True:
            for message in self.heard:
                if wanted(message):
                    self.heard.remove(message)
                    return message
            self._hear(end - time.monotonic())

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request that must work."""
        answer = self.answer(self.send(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        """The error of a request that must not work."""
        answer = self.answer(self.send(method, **params))
        assert "error" in answer, answer
        return dict(answer["error"])

    def end_input(self) -> None:
        """Closes the host's standard input."""
        assert self.process.stdin
        self.process.stdin.close()

    def _hear(self, seconds: float) -> None:
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, seconds))
        data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
        if not data:
            raise AssertionError(f"no such message ({'end of output' if ready else 'time is up'}); heard {self.heard}")
        *lines, self._part = (self._part + data).split(b"\n")
        self.heard.extend(json.loads(line) for line in lines)
