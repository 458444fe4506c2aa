"""What a tree of files cannot tell: whose a device node is, who we are, and what a device answers to an ioctl.

`Edge` asks the machine that we run on. `Still` asks nothing, for trees that are only files.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

GPIO_GET_CHIPINFO = 0x8044B401
I2C_SLAVE, I2C_FUNCS, I2C_SMBUS = 0x0703, 0x0705, 0x0720
SMBUS_WRITE, SMBUS_READ, SMBUS_QUICK, SMBUS_BYTE = 0, 1, 0, 1
FUNC_QUICK, FUNC_READ_BYTE = 0x00010000, 0x00020000
I2C_FIRST, I2C_LAST = 0x08, 0x77
I2C_WITHIN = 2.0  # seconds for all addresses of a bus; one that is held low takes up to a second for each
MAILBOX_PROPERTY = 0xC0006400 | struct.calcsize("P") << 16
GET_THROTTLED = 0x00030046
SIOCGIWFREQ, SIOCGIWPOWER = 0x8B05, 0x8B2D


class Owner(NamedTuple):
    """Who may use a device node."""

    uid: int
    gid: int
    mode: int


class User(NamedTuple):
    """Who is scanning."""

    uid: int
    groups: frozenset[int]
    pid: int


class StuckBus(Exception):
    """An I2C bus did not answer in time."""


class Edge:
    """This machine."""

    def owner(self, path: Path) -> Owner | None:
        """Owner, group and mode; None if it is not there."""
        try:
            found = path.stat()
        except OSError:
            return None
        return Owner(found.st_uid, found.st_gid, found.st_mode & 0o777)

    def user(self) -> User:
        """Us."""
        return User(os.geteuid(), frozenset({os.getegid(), *os.getgroups()}), os.getpid())

    def machine(self) -> str:
        """The instruction set."""
        return os.uname().machine

    def gpio_chip(self, path: Path) -> tuple[str, int] | None:
        """Label and number of lines; asking changes nothing. None if it cannot be asked."""
        answer = _ioctl(path, GPIO_GET_CHIPINFO, bytearray(68), flags=os.O_RDONLY)
        if answer is None:
            return None
        label = bytes(answer[32:64]).split(b"\0")[0].decode("utf-8", "replace")
        return label, int(struct.unpack_from("<I", answer, 64)[0])

    def i2c_answers(self, path: Path, skip: frozenset[int]) -> list[int]:
        """The addresses that answer. No byte is ever written: SMBus quick commands, or a read of one byte at the
        addresses of EEPROMs, as i2cdetect does it. Addresses of kernel drivers are left alone.

        Raises `OSError` when the bus cannot be opened, `StuckBus`.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _i2c_addresses(handle, skip)
        finally:
            os.close(handle)

    def throttled(self) -> int | None:
        """The firmware's word on voltage and throttling (a Raspberry Pi's), or None."""
        packet = bytearray(struct.pack("=8I", 32, 0, GET_THROTTLED, 4, 0, 0, 0, 0))
        answer = _ioctl(Path("/dev/vcio"), MAILBOX_PROPERTY, packet, flags=os.O_RDWR)
        if answer is None or struct.unpack_from("=I", answer, 4)[0] != 0x80000000:
            return None
        return int(struct.unpack_from("=I", answer, 20)[0])

    def wifi(self, interface: str) -> tuple[float | None, bool | None]:
        """Frequency in MHz, and whether it saves power; None where the driver does not tell."""
        return _wifi_mhz(interface), _wifi_saves(interface)

    def disk_free(self, root: Path) -> int | None:
        """Bytes that are free on the file system of the root folder."""
        try:
            found = os.statvfs(root)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize


class Still(Edge):
    """A folder of files: nothing answers, everybody may do everything."""

    def owner(self, path: Path) -> Owner | None:
        """As if all were ours."""
        return Owner(0, 0, 0o666) if path.exists() else None

    def user(self) -> User:
        """Nobody in particular, who may do everything."""
        return User(0, frozenset(), 0)

    def machine(self) -> str:
        """Not known."""
        return ""

    def gpio_chip(self, path: Path) -> tuple[str, int] | None:
        """Nothing."""
        return None

    def i2c_answers(self, path: Path, skip: frozenset[int]) -> list[int]:
        """Nothing."""
        return []

    def throttled(self) -> int | None:
        """Nothing."""
        return None

    def wifi(self, interface: str) -> tuple[float | None, bool | None]:
        """Nothing."""
        return None, None

    def disk_free(self, root: Path) -> int | None:
        """Nothing."""
        return None


def _ioctl(path: Path, request: int, packet: bytearray, *, flags: int) -> bytearray | None:
    try:
        handle = os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.ioctl(handle, request, packet, True)
    except OSError:
        return None
    finally:
        os.close(handle)
    return packet


def _i2c_addresses(handle: int, skip: frozenset[int]) -> list[int]:
    import ctypes

    functions = ctypes.c_ulong(0)
    fcntl.ioctl(handle, I2C_FUNCS, functions)
    found, began = [], time.monotonic()
    for address in range(I2C_FIRST, I2C_LAST + 1):
        if address in skip:
            continue
        if time.monotonic() - began > I2C_WITHIN:
            raise StuckBus
        how = i2c_question(address, functions.value)
        if how is not None and _i2c_ask(handle, address, *how):
            found.append(address)
    return found


def i2c_question(address: int, functions: int) -> tuple[int, int] | None:
    """Direction and size of the SMBus command that is the safest one for an address; None if the adapter has none.

    As i2cdetect chooses it: a quick command corrupts one EEPROM (AT24RF08), and a read locks some chips that can only
    be written, so 0x30..0x37 and 0x50..0x5f are read and all others asked with a quick command.
    """
    eeprom = 0x30 <= address <= 0x37 or 0x50 <= address <= 0x5F
    if eeprom or not functions & FUNC_QUICK:
        return (SMBUS_READ, SMBUS_BYTE) if eeprom and functions & FUNC_READ_BYTE else None
    return SMBUS_WRITE, SMBUS_QUICK


def _i2c_ask(handle: int, address: int, direction: int, size: int) -> bool:
    import ctypes

    class Call(ctypes.Structure):
        _fields_ = (
            ("read_write", ctypes.c_uint8),
            ("command", ctypes.c_uint8),
            ("size", ctypes.c_uint32),
            ("data", ctypes.c_void_p),
        )

    data = ctypes.create_string_buffer(34)
    call = Call(direction, 0, size, ctypes.addressof(data) if size == SMBUS_BYTE else None)
    try:
        fcntl.ioctl(handle, I2C_SLAVE, address)  # refused (EBUSY) where a kernel driver has the address
        fcntl.ioctl(handle, I2C_SMBUS, call)
    except OSError:
        return False
    return True


def _wireless(interface: str, request: int) -> bytes | None:
    import socket

    packet = bytearray(interface.encode()[:15].ljust(16, b"\0") + bytes(16))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            fcntl.ioctl(link, request, packet, True)
    except OSError:
        return None
    return bytes(packet[16:])


def _wifi_mhz(interface: str) -> float | None:
    answer = _wireless(interface, SIOCGIWFREQ)
    if answer is None:
        return None
    mantissa, exponent = struct.unpack_from("<ih", answer)
    mhz = float(mantissa) * 10.0**exponent / 1e6
    return mhz if mhz > 1000 else None  # else it is a channel's number


def _wifi_saves(interface: str) -> bool | None:
    answer = _wireless(interface, SIOCGIWPOWER)
    return None if answer is None else answer[5] == 0  # iw_param.disabled
