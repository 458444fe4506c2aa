"""What all tests share: `import tests.rig...`, and tests that are coroutines."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

LONGEST = 30.0  # seconds that one coroutine may take


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test on a loop of its own, within `LONGEST`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def within_time() -> None:
        async with asyncio.timeout(LONGEST):
            await pyfuncitem.obj(**arguments)

    asyncio.run(within_time())
    return True
