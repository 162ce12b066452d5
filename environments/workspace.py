"""The sandbox of one rollout: started at its first use, released whatever happens."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

from backends.base import Slot, ToolBackend
from backends.resources import USUAL, Resources
from trajectories.errors import LeaseExpired, SandboxError

SetUp = Callable[[Slot], Awaitable[None]]


class Workspace:
    """A slot that is acquired and set up when it is first asked for.

    Many rollouts never call a tool; they cost no sandbox.

    Args:
        backend: Where the slot comes from.
        task_id: Whom it is for.
        set_up: Prepares it.
        image: What it starts from; None is the backend's default.
        resources: What it may use.
    """

    def __init__(
        self,
        backend: ToolBackend,
        task_id: str,
        set_up: SetUp,
        image: str | None = None,
        resources: Resources = USUAL,
    ):
        self.setup_s = 0.0
        """Wall time of starting and setting up the sandbox."""
        self._backend = backend
        self._task_id = task_id
        self._set_up = set_up
        self._image = image
        self._resources = resources
        self._slot: Slot | None = None
        self._released = False
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def slot(self) -> Slot:
        """Return the slot.

        Raises:
            SandboxError: It could not be started or set up.
        """
        async with self._lock:
            if self._released:
                raise LeaseExpired(f"the workspace of {self._task_id} was used after its release")
            if self._slot is None:
                started = time.perf_counter()
                lease = self._backend.acquire(self._task_id, image=self._image, resources=self._resources)
                slot = await self._stack.enter_async_context(lease)
                try:
                    await self._set_up(slot)
                except OSError as error:
                    raise SandboxError(f"the sandbox could not be set up: {error}") from error
                self._slot = slot
                self.setup_s = time.perf_counter() - started
            return self._slot

    async def release(self) -> None:
        """End the sandbox and everything in it; it can't be used again. Idempotent."""
        self._released = True
        await self._stack.aclose()

    def another(self, purpose: str, set_up: SetUp) -> "Workspace":
        """Return a workspace of its own for the same task, in a sandbox that nobody has used."""
        name = f"{self._task_id}/{purpose}"
        return Workspace(self._backend, name, set_up, self._image, self._resources)

    async def __aenter__(self) -> "Workspace":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()
