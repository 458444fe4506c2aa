"""Cameras: USB ones by their video device, those of the camera port by their sensor."""

from __future__ import annotations

from typing import Any

from edgepanda.model.hardware import Camera
from edgepanda.node.scan import usb
from edgepanda.node.scan.fault import busy, denied, fields
from edgepanda.node.scan.root import Root

LENSES = ("dw9714", "dw9807-vcm", "ak7375", "ad5398")  # sub-devices beside a sensor that are none
CLASS = "sys/class/video4linux"


def cameras(root: Root) -> tuple[Camera, ...]:
    """All cameras. The many video devices of codecs and image processors are none."""
    found = [_usb(root, name) for name in root.names(CLASS, r"video\d+") if _is_usb(root, name)]
    found += [_sensor(root, name) for name in root.names(CLASS, r"v4l-subdev\d+") if _is_sensor(root, name)]
    for device, fault in usb.driverless(root, "uvcvideo"):
        found.append(Camera(name=device.id, kind="USB", model=device.name, **fault.fields))
    return tuple(found)


def _is_usb(root: Root, name: str) -> bool:
    driver = root.link(f"{CLASS}/{name}/device/driver")
    return driver == "uvcvideo" and root.text(f"{CLASS}/{name}/index") == "0"  # further ones have metadata


def _usb(root: Root, name: str) -> Camera:
    stable = next((each for each in root.names("dev/v4l/by-id") if root.link(f"dev/v4l/by-id/{each}") == name), name)
    device, model = f"/dev/{name}", root.text(f"{CLASS}/{name}/name")
    return Camera(name=stable, device=device, kind="USB", model=model, **_faults(root, device))


def _is_sensor(root: Root, name: str) -> bool:
    chip = root.real(f"{CLASS}/{name}/device").rpartition("/")[2]
    on_i2c = bool(chip) and root.has(f"sys/bus/i2c/devices/{chip}")
    return on_i2c and root.text(f"sys/bus/i2c/devices/{chip}/name") not in LENSES


def _sensor(root: Root, name: str) -> Camera:
    chip = root.real(f"{CLASS}/{name}/device").rpartition("/")[2]
    model = root.text(f"{CLASS}/{name}/name").split(" ")[0]
    device = f"/dev/{name}"
    return Camera(name=f"{model} {chip}", device=device, kind="CSI", model=model, **_faults(root, device))


def _faults(root: Root, device: str) -> dict[str, Any]:
    return fields(denied(root, device, "video"), busy(root, device))
