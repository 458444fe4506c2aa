"""What `init` makes of the hardware that is found here: which pin a servo is on, if any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from edgepanda.cli.init_questions import NO_SERVO
from edgepanda.cli.out import hint
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.hardware import GpioChip, Hardware

HEADER_PINS = 28  # GPIO 0 to 27 are on a Raspberry Pi's header


def scanned() -> Hardware:
    """This machine."""
    from edgepanda.node.scan import scan

    return scan()


def ask_servo(hardware: Hardware) -> str:
    """Show what was found, and ask for a servo's pin where there is a GPIO chip that can be used; `none` for none."""
    import msgspec

    from edgepanda.cli.hardware_view import hardware_lines

    click.echo("\nFound here:")
    for line in hardware_lines(msgspec.to_builtins(hardware)):
        click.echo(f"  {line}")
    if not any(chip.state == "usable" for chip in hardware.gpio):
        click.echo("No GPIO chip can be used here, so the first device, a servo called `pan`, is simulated.")
        return NO_SERVO
    click.echo("A servo needs a GPIO pin for its signal wire. Enter for none: then a servo called `pan` is simulated.")

    def checked(text: str) -> str:
        try:
            return NO_SERVO if text.strip() in ("", NO_SERVO) else servo_pin(text.strip(), hardware)
        except EdgePandaError as error:
            raise click.UsageError(f"{error.message}; {error.cure}") from error

    answer: str = click.prompt(
        f"Pin of a servo, as in {example_of(hardware)} [none]", "", show_default=False, value_proc=checked
    )
    return answer


def servo_pin(text: str, hardware: Hardware) -> str:
    """A pin as the configuration has it, from `18`, `GPIO18` or `gpiochip1:7`.

    Raises `EdgePandaError` (`config_value`) when there is no such line here.
    """
    from edgepanda.cli.driver_options import pin_text

    chip, line = _named(text)
    found = next((each for each in hardware.gpio if _suits(each, chip)), None)
    if line is None or found is None or line >= (HEADER_PINS if chip is None else found.lines or 1024):
        have = [f"{each.device.removeprefix('/dev/')} ({each.lines} lines)" for each in hardware.gpio]
        what = "no GPIO pin" if line is None else "not here: no Raspberry Pi" if chip is None else "no line here"
        what = "not on the header" if line is not None and found is not None and chip is None else what
        raise EdgePandaError(
            f"{text!r} is {what}",
            code="config_value",
            where="--servo",
            cure=f"write it as in {example_of(hardware)}; there are {', '.join(have)}" if have else "no GPIO chip here",
        )
    return pin_text(text)


def warn_of(text: str, hardware: Hardware) -> None:
    """Say so where the chip of a pin that was checked cannot be used yet."""
    chip, _ = _named(text)
    for each in hardware.gpio:
        if _suits(each, chip) and each.state != "usable":
            hint(f"the servo cannot be used yet: {each.reason}; {each.cure}")


def example_of(hardware: Hardware) -> str:
    """How a pin of this machine is written."""
    if any(chip.header for chip in hardware.gpio):
        return "18"
    chip = next((chip for chip in hardware.gpio if chip.state == "usable"), None)
    return f"{chip.device.removeprefix('/dev/')}:7" if chip is not None else "gpiochip0:7"


def _named(text: str) -> tuple[str | None, int | None]:
    """Chip (None: the header's) and line (None: neither form)."""
    if found := re.fullmatch(r"(gpiochip\d{1,3})[:/](\d{1,4})", text):
        return found[1], int(found[2])
    found = re.fullmatch(r"(?i:gpio|bcm)?(\d{1,3})", text)
    return None, int(found[1]) if found else None


def _suits(each: GpioChip, chip: str | None) -> bool:
    return each.header if chip is None else each.device == f"/dev/{chip}"
