"""What the live machine is asked: owners, processes, and which I2C command an address gets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from edgepanda.node.scan import edge, readings, scan
from edgepanda.node.scan.edge import Edge, Owner, Still, User
from edgepanda.node.scan.fault import busy, denied
from edgepanda.node.scan.root import Root

BOTH = edge.FUNC_QUICK | edge.FUNC_READ_BYTE


class As(Still):
    """Somebody, and a device of somebody."""

    def __init__(self, user: User, owner: Owner) -> None:
        self._user, self._owner = user, owner

    def user(self) -> User:
        return self._user

    def owner(self, path: Path) -> Owner:
        return self._owner


def test_addresses_of_eeproms_are_read_and_no_other_is() -> None:
    read = {address for address in range(0x08, 0x78) if edge.i2c_question(address, BOTH) == (1, 1)}
    assert read == {*range(0x30, 0x38), *range(0x50, 0x60)}
    assert all(edge.i2c_question(address, BOTH) == (0, 0) for address in set(range(0x08, 0x78)) - read)


def test_an_adapter_without_the_harmless_command_is_not_asked() -> None:
    assert edge.i2c_question(0x50, edge.FUNC_QUICK) is None
    assert edge.i2c_question(0x20, edge.FUNC_READ_BYTE) is None
    assert edge.i2c_question(0x50, 0) is None


def test_who_may_use_a_device(tmp_path: Path) -> None:
    def may(uid: int, groups: set[int], owner: Owner) -> bool:
        return denied(Root(tmp_path, As(User(uid, frozenset(groups), 1), owner)), "/dev/x", "gpio") is None

    gpio = Owner(0, 986, 0o660)
    assert may(1000, {986}, gpio)
    assert not may(1000, {20}, gpio)
    assert may(0, set(), Owner(0, 0, 0o600))
    assert may(1000, set(), Owner(0, 0, 0o666))
    assert may(1000, set(), Owner(1000, 0, 0o600))
    assert not may(1000, {986}, Owner(0, 986, 0o640))


@pytest.mark.parametrize(("group", "subsystem"), [("i2c", "i2c-dev"), ("gpio", "gpio"), ("dialout", "tty")])
def test_a_device_of_root_alone_needs_a_rule_with_the_name_that_udev_knows(
    tmp_path: Path, group: str, subsystem: str
) -> None:
    fault = denied(Root(tmp_path, As(User(1000, frozenset(), 1), Owner(0, 0, 0o600))), "/dev/x", group)
    assert fault is not None
    assert f'SUBSYSTEM=="{subsystem}", GROUP="{group}"' in fault.cure


def test_a_real_process_that_has_a_file_open_is_found_and_our_own_is_not() -> None:
    with open("/dev/null"):
        assert os.getpid() not in [pid for pid, _ in Root(Path("/")).users("/dev/null")]

    class Other(Edge):
        def user(self) -> User:
            return super().user()._replace(pid=0)

    with open("/dev/zero"):
        fault = busy(Root(Path("/"), Other()), "/dev/zero")
    assert fault is not None
    assert f"(pid {os.getpid()})" in fault.reason


def test_a_device_that_is_no_gpio_chip_and_an_interface_that_is_no_radio_tell_nothing() -> None:
    assert Edge().gpio_chip(Path("/dev/null")) is None
    assert Edge().gpio_chip(Path("/dev/gpiochip-that-is-not-there")) is None
    assert Edge().wifi("lo") == (None, None)
    assert Edge().owner(Path("/dev/null-that-is-not-there")) is None


def test_this_machine_can_be_scanned() -> None:
    found = scan()
    assert not found.problems
    assert (found.machine, found.kernel) == (os.uname().machine, os.uname().release)
    assert found.cpus >= 1
    assert found.memory_mib > 0
    now = readings()
    assert now.memory_free_mib is not None
    assert now.disk_free_mib is not None
    assert socket.gethostname() not in str(found)
