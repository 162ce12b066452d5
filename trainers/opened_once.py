"""A context that is opened where it is first used: trainers build their parts before any loop runs."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

Held = TypeVar("Held")


class OpenedOnce(Generic[Held]):
    """Await it for what the context holds; all callers run in one event loop.

    Without `close` it stays open until the process ends, as its sandboxes then do by themselves.

    Args:
        make: Makes the context: once, and again where it is used after `close` or after opening failed.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Held]]):
        self._make = make
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        """Of the stack: what is asked for while it closes opens afterwards."""
        self._opening: asyncio.Task[Held] | None = None

    async def __call__(self) -> Held:
        """Open the context, or wait until the first caller has; what opening raises is raised to both."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Close it, or cancel its opening; idempotent."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        async with self._lock:
            await self._stack.aclose()

    async def _open(self) -> Held:
        try:
            async with self._lock:
                return await self._stack.enter_async_context(self._make())
        except BaseException:
            if self._opening is asyncio.current_task():
                self._opening = None
            raise
