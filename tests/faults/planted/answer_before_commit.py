"""Answers go out before what they say is on disk, which is a slow one."""

import asyncio
from typing import Any

from edgepanda.coordinator.book import Book, Done, Failed
from edgepanda.coordinator.ledger import Ledger

append = Ledger.append


async def slow(self: Ledger, *args: Any, **more: Any) -> Any:
    await asyncio.sleep(0.1)
    return await append(self, *args, **more)


def then(self: Book, done: Done, failed: Failed | None = None) -> None:
    asyncio.get_running_loop().call_soon(done)


Ledger.append = slow  # type: ignore[method-assign]
Book.then = then  # type: ignore[method-assign]
