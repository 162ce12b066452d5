"""Teardown that a cancellation can't leave half done."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from trajectories.errors import SandboxError

log = logging.getLogger(__name__)

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


async def undo(work: Coroutine[Any, Any, None]) -> None:
    """`finish` what takes back a start that failed or was cancelled, which is what the caller shall learn of.

    An error of ``work`` is logged.
    """
    try:
        await finish(work)
    except (SandboxError, TimeoutError, OSError) as error:
        log.error("what a failed start left behind could not be ended: %s", error)
