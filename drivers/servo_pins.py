"""Where a servo's pulses come from: gpiozero's pins, or lgpio's own servo pulses where lgpio is the pin factory.

lgpio is driven directly because gpiozero's lgpio pins round the duty cycle to whole percents: at 50 Hz that is
200 µs, so a servo of 1 to 2 ms would know six positions.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from edgepanda.drivers.contract import DriverError
from edgepanda.drivers.gpio import HEADER_LABELS
from edgepanda.drivers.servo_motion import ChipLine, ServoConfig

FREQUENCY = 50
INSTALL = "pip install 'edgepanda[gpio]', or set simulate = true"


class ReadBack(NamedTuple):
    """What is known of the pulse now: its width in µs (None: no pulse), and who says so."""

    pulse_us: float | None
    source: str


class Pulses(Protocol):
    """A pin that can carry servo pulses; it starts without."""

    simulated: bool
    backend: str
    resolution_us: float

    def write(self, pulse_us: float) -> None:
        """Sends pulses of this width, from the next frame on."""

    def stop(self) -> None:
        """Sends none; the line stays low."""

    def read(self) -> ReadBack:
        """The pulse as the lowest layer that can be asked reports it."""

    def close(self) -> None:
        """Gives the pin back."""


class Backend(NamedTuple):
    """What `choose` decided: the layer's name, the module or factory, and why."""

    name: str
    layer: Any
    why: str


def choose(config: ServoConfig) -> Backend:
    """Which layer a configuration gets here.

    Raises:
        DriverError: `unavailable`, with the reason and the cure.
    """
    if config.simulate:
        return Backend("simulated", _mock_factory(config), "simulate = true")
    lgpio, reason = _lgpio()
    if config.backend == "lgpio" or (config.backend == "auto" and "GPIOZERO_PIN_FACTORY" not in os.environ):
        if lgpio is not None:
            return Backend("lgpio", lgpio, "lgpio sends exact servo pulses")
        if config.backend == "lgpio":
            raise DriverError(reason, code="unavailable", where="backend", cure=INSTALL)
    if isinstance(config.pin, ChipLine):
        why = reason or "gpiozero knows a Raspberry Pi's own numbers only"
        raise DriverError(
            f"a pin by chip and line needs lgpio: {why}",
            code="unavailable",
            where=config.place,
            cure=f'{INSTALL}; leave backend = "auto", and GPIOZERO_PIN_FACTORY unset',
        )
    why = reason if lgpio is None else "it was asked for"
    return Backend("gpiozero", _default_factory(), why)


def _lgpio() -> tuple[Any, str]:
    """The lgpio module if it is the real one and has a chip to drive; else None and the reason."""
    try:
        lgpio = importlib.import_module("lgpio")
    except (ImportError, OSError) as error:
        return None, f"lgpio cannot be imported: {error}"
    if not hasattr(lgpio, "tx_servo"):
        return None, "the installed lgpio is an empty package (0.0.0.2 on PyPI) without tx_servo"
    if not any(Path("/dev").glob("gpiochip*")):
        return None, "there is no /dev/gpiochip*"
    return lgpio, ""


_shared: dict[str, Any] = {}


def _mock_factory(config: ServoConfig) -> Any:
    """One for each chip, so that equal lines of two chips are two pins."""
    name = f"mock {config.pin.chip}" if isinstance(config.pin, ChipLine) else "mock"
    if name not in _shared:
        from gpiozero.pins.mock import MockFactory, MockPWMPin

        _shared[name] = MockFactory(pin_class=MockPWMPin)
    return _shared[name]


def _gpiozero_pin(factory: Any, config: ServoConfig) -> Any:
    """The factory's pin. A simulated chip has any line, where gpiozero's mock factory has those of a Pi's header."""
    if not isinstance(config.pin, ChipLine):
        return factory.pin(config.pin)
    _, header_pin = next(iter(factory.board_info.find_pin("GPIO2")))
    info = header_pin._replace(name=f"GPIO{config.pin.line}", pull="")
    if info not in factory.pins:
        factory.pins[info] = factory.pin_class(factory, info)
    return factory.pins[info]


def _default_factory() -> Any:
    if "default" not in _shared:
        try:
            from gpiozero import Device

            _shared["default"] = Device.pin_factory or Device._default_pin_factory()
        except Exception as error:
            raise DriverError(
                f"gpiozero finds no pins here: {error}", code="unavailable", where="backend", cure=INSTALL
            ) from error
    return _shared["default"]


def connect(config: ServoConfig) -> Pulses:
    """Claims the pin, low and without pulses.

    Raises:
        DriverError: `busy` with who has the pin; `unavailable` with the cure.
    """
    backend = choose(config)
    if backend.name == "lgpio":
        return LgpioPulses(config, backend.layer)
    return GpiozeroPulses(config, backend.layer)


class GpiozeroPulses:
    """Pulses through a gpiozero pin with PWM; the pin itself, since gpiozero's servo classes start at the middle."""

    def __init__(self, config: ServoConfig, factory: Any) -> None:
        self.simulated = type(factory).__name__ == "MockFactory"
        self.backend = f"gpiozero {type(factory).__name__}"
        self.resolution_us = 200.0 if type(factory).__name__ == "LGPIOFactory" else 1.0
        self._factory = factory
        try:
            self.pin = _gpiozero_pin(factory, config)
            factory.reserve_pins(self, self.pin)
            self.pin.function = "output"
            self.pin.state = 0
            self.pin.frequency = FREQUENCY  # at duty 0: only shows that this factory can
            self.pin.frequency = None
        except Exception as error:
            raise _pin_error(config, error, self.backend) from error

    def _conflicts_with(self, other: object) -> bool:
        return other is not self

    def write(self, pulse_us: float) -> None:
        """Sends pulses of this width; while detached, the duty cycle is 0 until the width is set."""
        if self.pin.frequency is None:
            self.pin.frequency = FREQUENCY
        self.pin.state = pulse_us * FREQUENCY / 1e6

    def stop(self) -> None:
        """Sends none."""
        self.pin.frequency = None

    def read(self) -> ReadBack:
        """The duty cycle that the pin reports, as a width."""
        frequency = self.pin.frequency
        return ReadBack(None if frequency is None else self.pin.state / frequency * 1e6, f"{self.backend} pin state")

    def close(self) -> None:
        """Stops and gives the pin back."""
        self.pin.frequency = None
        self._factory.release_pins(self, self.pin)
        self.pin.close()


class LgpioPulses:
    """Pulses by `lgpio.tx_servo`, exact to the microsecond.

    lgpio cannot tell a pulse's width; what is read back is the width that it accepted, and that it transmits.
    """

    simulated = False
    backend = "lgpio tx_servo"
    resolution_us = 1.0

    def __init__(self, config: ServoConfig, lgpio: Any) -> None:
        self._lgpio = lgpio
        self._place = config.place
        self._accepted: int | None = None
        chip, self._pin, self._handle = _open_chip(config, lgpio)
        try:
            lgpio.gpio_claim_output(self._handle, self._pin, 0)
        except Exception as error:
            user = _line_user(lgpio, self._handle, self._pin)
            lgpio.gpiochip_close(self._handle)
            raise _pin_error(config, error, self.backend, user, chip) from error

    def write(self, pulse_us: float) -> None:
        """Sends pulses of this width, rounded to whole microseconds."""
        width = round(pulse_us)
        try:
            self._lgpio.tx_servo(self._handle, self._pin, width, FREQUENCY)
        except Exception as error:
            self._accepted = None
            raise DriverError(f"lgpio refused a pulse of {width} µs: {error}", where=self._place) from error
        self._accepted = width

    def stop(self) -> None:
        """Sends none."""
        if self._accepted is not None:
            self._lgpio.tx_servo(self._handle, self._pin, 0, FREQUENCY)
            self._accepted = None

    def read(self) -> ReadBack:
        """The accepted width while lgpio says that it transmits."""
        busy = self._lgpio.tx_busy(self._handle, self._pin, self._lgpio.TX_PWM)
        width = float(self._accepted) if busy and self._accepted is not None else None
        return ReadBack(width, "width accepted by lgpio.tx_servo, lgpio.tx_busy says that it is being sent")

    def close(self) -> None:
        """Stops and frees the line."""
        self.stop()
        self._lgpio.gpio_free(self._handle, self._pin)
        self._lgpio.gpiochip_close(self._handle)


def check_line(config: ServoConfig, lgpio: Any) -> None:
    """Whether the chip can be opened and has the line; claims nothing.

    Raises:
        DriverError: `unavailable`, with the reason and the cure.
    """
    lgpio.gpiochip_close(_open_chip(config, lgpio)[2])


def _open_chip(config: ServoConfig, lgpio: Any) -> tuple[int, int, int]:
    """The number of the chip, that of the line, and lgpio's handle of the open chip."""
    if isinstance(config.pin, ChipLine):
        chip, line = int(config.pin.chip.removeprefix("gpiochip")), config.pin.line
    else:
        chip, line = header_chip(lgpio), config.pin
    try:
        handle = lgpio.gpiochip_open(chip)
    except Exception as error:
        raise DriverError(
            f"/dev/gpiochip{chip} cannot be opened: {error}",
            code="unavailable",
            where=f"/dev/gpiochip{chip}",
            cure=f"there are {_chips()}; the service's user must be in the group that owns it (gpio on Raspberry "
            "Pi OS)",
        ) from error
    lines = lgpio.gpio_get_chip_info(handle)[1]
    if line >= lines:
        lgpio.gpiochip_close(handle)
        raise DriverError(
            f"gpiochip{chip} has {lines} lines, and no line {line}",
            code="unavailable",
            where=config.place,
            cure=f"set one of 0 to {lines - 1}; `gpioinfo gpiochip{chip}` lists them with their users",
        )
    return chip, line, handle


def header_chip(lgpio: Any) -> int:
    """The number of the gpiochip with a Raspberry Pi's header, by its label; 0 if none has one."""
    for path in sorted(Path("/dev").glob("gpiochip[0-9]*")):
        number = int(path.name.removeprefix("gpiochip"))
        try:
            handle = lgpio.gpiochip_open(number)
        except Exception:  # noqa: S112 - one that cannot be opened is not ours to use
            continue
        label = lgpio.gpio_get_chip_info(handle)[3]
        lgpio.gpiochip_close(handle)
        if label in HEADER_LABELS:
            return number
    return 0


def _chips() -> str:
    """The chips of this machine, for a person."""
    names = sorted(path.name for path in Path("/dev").glob("gpiochip[0-9]*"))
    return ", ".join(names) or "no GPIO chips here"


def _line_user(lgpio: Any, handle: int, pin: int) -> str:
    try:
        return str(lgpio.gpio_get_line_info(handle, pin)[4])
    except Exception:
        return ""


def _pin_error(
    config: ServoConfig, error: Exception, backend: str, user: str = "", chip: int | None = None
) -> DriverError:
    where = config.place
    if "busy" in str(error).lower() or type(error).__name__ == "GPIOPinInUse":
        holders = ", ".join(filter(None, [user and f"as {user!r}", *_holders(chip)])) or str(error)
        return DriverError(
            f"the pin is in use: {holders}",
            code="busy",
            where=where,
            cure="`gpioinfo` shows the lines and their users; end that program, or set another pin",
        )
    if type(error).__name__.startswith("PinInvalid"):
        cure = "`pinout` shows the numbers of the header's pins; set one of them"
    else:
        cure = INSTALL if chip is None else f"`gpioinfo gpiochip{chip}` lists its lines; set another pin"
    return DriverError(f"{backend} cannot use the pin: {error}", code="unavailable", where=where, cure=cure)


def _holders(chip: int | None) -> list[str]:
    """Processes that have the gpiochip open (all that we may look into), besides this one."""
    wanted = f"/dev/gpiochip{chip}" if chip is not None else "/dev/gpiochip"
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        pid = link.parts[2]
        try:
            if int(pid) != os.getpid() and os.readlink(link).startswith(wanted):
                found.append(f"{Path('/proc', pid, 'comm').read_text().strip()} (pid {pid}) has {wanted} open")
        except OSError:
            continue
    return sorted(set(found))
