"""Teardown that a cancellation can't leave half done."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end, whatever happens to the caller; a cancellation is raised after it.

    `asyncio.shield` alone lets the caller go on while the work is still under way. The work itself must be
    bounded in time.
    """
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as lost
        raise asyncio.CancelledError
    return task.result()
