"""A context that is opened where it is first used: trainers build their parts before any loop runs."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

Held = TypeVar("Held")


class OpenedOnce(Generic[Held]):
    """Await it for what the context holds; all callers run in one event loop.

    Without `close` it stays open until the process ends, as its sandboxes then do by themselves.
    """

    def __init__(self, context: AbstractAsyncContextManager[Held]):
        self._context = context
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[Held] | None = None

    async def __call__(self) -> Held:
        """Open the context, or wait until the first caller has."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._stack.enter_async_context(self._context))
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Close it; idempotent."""
        await self._stack.aclose()
