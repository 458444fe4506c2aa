"""How the board is at this moment: temperature, power supply, Wi-Fi."""

from __future__ import annotations

from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient
from edgepanda.model.hardware import Readings, WifiReading

HOT = 80.0  # degrees Celsius: from here on a Raspberry Pi slows down
WEAK = -75  # dBm: below it packets are lost
_SUPPLY = "take a supply and a cable that are made for this board; thin cables and hubs are the usual reason"


def read(patient: Patient) -> Readings:
    """What the kernel's files and the firmware tell."""
    from edgepanda.node.scan import readings

    return readings(patient.root)


def judge(seen: Readings) -> list[Finding]:
    """What is so now is worse than what was so once since the start."""
    found = [*_power(seen)]
    slowed = [word for word in seen.throttled if word != "under-voltage"]
    if slowed or (seen.temperature or 0) >= HOT:
        told = f"{seen.temperature:g} degrees" if seen.temperature is not None else "temperature not told"
        told += f", slowed down: {', '.join(slowed)}" if slowed else ""
        cure = "give it air or a heat sink; `edgepanda status` shows what works at the moment"
        found.append(warning(code="hardware_hot", where="processor", found=told, cure=cure))
    for name, link in seen.wifi.items():
        found += _wifi(name, link)
    return found or [ok(where="hardware", found=_fine(seen))]


def _power(seen: Readings) -> list[Finding]:
    where = "power supply"
    if seen.under_voltage:
        told = "the voltage is too low at this moment: cards are damaged and devices fail that way"
        return [fault(code="hardware_under_voltage", where=where, found=told, cure=_SUPPLY)]
    if "under-voltage" in seen.throttled_before:
        told = "the voltage has been too low since the start of the machine"
        return [warning(code="hardware_under_voltage", where=where, found=told, cure=_SUPPLY)]
    return []


def _wifi(name: str, link: WifiReading) -> list[Finding]:
    found = []
    if not link.connected:
        return []
    if link.signal_dbm is not None and link.signal_dbm < WEAK:
        cure = "move the board or the access point, or take 2.4 GHz, which reaches further"
        told = f"weak signal: {link.signal_dbm} dBm{f' at {link.band}' if link.band else ''}"
        found.append(warning(code="wifi_weak", where=name, found=told, cure=cure))
    if link.power_saving:
        cure = (
            f"`sudo iw dev {name} set power_save off`; for good, with NetworkManager: "
            "`nmcli connection modify NAME wifi.powersave 2`"
        )
        told = "power saving is on: messages to this board wait up to a tenth of a second and more"
        found.append(warning(code="wifi_power_saving", where=name, found=told, cure=cure))
    return found


def _fine(seen: Readings) -> str:
    told = [f"{seen.temperature:g} degrees" if seen.temperature is not None else "temperature not told"]
    told.append("power supply not told" if seen.under_voltage is None else "power supply well")
    told += [
        f"{name} {link.signal_dbm} dBm" if link.signal_dbm is not None else f"{name} connected"
        for name, link in seen.wifi.items()
        if link.connected
    ]
    return ", ".join(told)
