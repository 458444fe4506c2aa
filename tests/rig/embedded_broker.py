"""A process with the embedded broker in it: `python embedded_broker.py HOST PORT`, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from edgepanda.services.broker import serve


async def run(host: str, port: int) -> None:
    """Serve, and say the port once it listens."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await serve(host, port, ready=lambda chosen: print(f"listens on port {chosen}", flush=True))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    try:
        asyncio.run(run(sys.argv[1], int(sys.argv[2])))
    except asyncio.CancelledError:
        sys.exit(0)
