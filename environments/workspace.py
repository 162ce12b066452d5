"""The sandbox of one rollout: started at its first use, released whatever happens."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

from backends.base import Slot, ToolBackend


class Workspace:
    """A slot that is acquired and set up when it is first asked for.

    Many rollouts never call a tool; they cost no sandbox.
    """

    def __init__(self, backend: ToolBackend, task_id: str, set_up: Callable[[Slot], Awaitable[None]]):
        self._backend = backend
        self._task_id = task_id
        self._set_up = set_up
        self.setup_s = 0.0
        """Wall time of starting and setting up the sandbox."""
        self._slot: Slot | None = None
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def slot(self) -> Slot:
        """Return the slot.

        Raises:
            SandboxError: It could not be started or set up.
        """
        async with self._lock:
            if self._slot is None:
                started = time.perf_counter()
                slot = await self._stack.enter_async_context(self._backend.acquire(self._task_id))
                await self._set_up(slot)
                self._slot = slot
                self.setup_s = time.perf_counter() - started
            return self._slot

    async def __aenter__(self) -> "Workspace":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()
