"""A process with the embedded broker in it: `python embedded_broker.py HOST PORT [FOLDER]`, until SIGTERM.

FOLDER has users.toml, cert.pem and key.pem: then it wants passwords and speaks TLS.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from edgepanda.services.broker import serve
from edgepanda.services.broker_accounts import Accounts
from edgepanda.services.broker_files import Certificate


async def run(host: str, port: int, options: dict[str, Any]) -> None:
    """Serve, and say the port once it listens."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await serve(host, port, ready=lambda chosen: print(f"listens on port {chosen}", flush=True), **options)


def secured(folder: Path) -> dict[str, Any]:
    """The broker's options for the files in this folder."""
    accounts = Accounts.load(folder / "users.toml")
    return {"accounts": accounts, "certificate": Certificate(folder / "cert.pem", folder / "key.pem")}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    try:
        asyncio.run(run(sys.argv[1], int(sys.argv[2]), secured(Path(sys.argv[3])) if sys.argv[3:] else {}))
    except asyncio.CancelledError:
        sys.exit(0)
