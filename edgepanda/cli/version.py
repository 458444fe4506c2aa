"""`version`."""

from __future__ import annotations

import platform

from edgepanda import __version__
from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, fields


@command("version", examples="edgepanda version\nedgepanda --version", timeout_help="")
def version_command(settings: Settings) -> None:
    """Versions of EdgePanda, Python and the protocol."""
    from edgepanda.wire.envelope import VERSION

    found = {
        "edgepanda": __version__,
        "protocol": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if settings.json:
        emit(found)
    else:
        fields(((name, str(value)) for name, value in found.items()), indent="")
