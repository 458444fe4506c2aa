"""Who has a port: from a tree like /proc, and from this machine's own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from edgepanda.services.port_owner import port_owner

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(address: str, state: str, inode: int) -> str:
    return f"   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine on which Mosquitto listens on 1883 (both protocols), and a broker of ours on 1884."""
    (tmp_path / "net").mkdir()
    ours = line("0100007F:075C", "0A", 20) + line("0100007F:075B", "01", 30)
    (tmp_path / "net/tcp").write_text(HEAD + ours)
    (tmp_path / "net/tcp6").write_text(HEAD + line("00000000000000000000000000000000:075B", "0A", 10))
    for pid, comm, words, inode in (
        (5, "mosquitto", "/usr/sbin/mosquitto\0-c\0m.conf\0", 10),
        (7, "python3", "/usr/bin/python3\0-m\0edgepanda\0broker\0", 20),
        (9, "curl", "curl\0", 30),
    ):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/comm").write_text(comm + "\n")
        (tmp_path / f"{pid}/cmdline").write_text(words)
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
    return tmp_path


@pytest.mark.parametrize(
    ("port", "owner"), [(1883, "mosquitto (process 5)"), (1884, "edgepanda broker (process 7)"), (1885, "")]
)
def test_the_listener_is_named_and_no_client(port: int, owner: str, proc: Path) -> None:
    assert port_owner(port, proc=proc) == owner


def test_a_process_that_may_not_be_looked_into_is_left_out(proc: Path) -> None:
    (proc / "5/fd/3").unlink()
    assert port_owner(1883, proc=proc) == ""


def test_a_machine_without_proc_tells_nothing(tmp_path: Path) -> None:
    assert port_owner(1883, proc=tmp_path) == ""


def test_our_own_listener_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert port_owner(server.getsockname()[1]).endswith(f"(process {os.getpid()})")
