"""A network of its own, with an address that is no loopback: for what listens beyond this machine.

    with Network() as network:
        person.prefix = network.prefix   # its commands run there; so does whatever is started with these words in front

Needs no root: a user namespace is enough.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Self

ADDRESS = "10.77.0.1"
_NAMESPACES = ("--user", "--net")
_FIRST = f"""
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 1))  # up
    address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton("{ADDRESS}"))
    fcntl.ioctl(sock, 0x8916, struct.pack("16s16s", b"lo:1", address))
print("up", flush=True)
sys.stdin.read()
"""


class Network:
    """A context manager; ends with all that runs in it only when that ends."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        words = ["unshare", *_NAMESPACES, "--map-root-user", sys.executable, "-c", _FIRST]
        self._holder = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "up\n":
            raise AssertionError(f"no network of our own here: {self._holder.stderr.read()}")
        return self

    @property
    def prefix(self) -> list[str]:
        """The words before a command that is to run in it."""
        assert self._holder is not None
        return ["nsenter", "--target", str(self._holder.pid), *_NAMESPACES, "--preserve-credentials", "--"]

    def __exit__(self, *_: object) -> None:
        if self._holder is not None:
            self._holder.communicate()
