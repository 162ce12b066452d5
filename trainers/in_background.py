"""What an async context manager holds, kept open in a thread, for trainers that are not asynchronous.

Sandboxes and connections belong to the event loop they were opened in and need it to run between the
trainer's calls as well, so each call can't bring a loop of its own.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

Held = TypeVar("Held")
Result = TypeVar("Result")


class InBackground(Generic[Held]):
    """Use it in a ``with`` statement, which opens and closes the context; what either raises is raised there.

    An interrupt while it opens cancels that, and is raised once what had been opened is closed.

    Args:
        context: Opened, used and closed in one event loop.
    """

    held: Held
    """What the context gave."""

    def __init__(self, context: AbstractAsyncContextManager[Held]):
        self._context = context
        self._running = set[asyncio.Task[Any]]()
        self._interrupted: Future[None] = Future()

    def __enter__(self) -> "InBackground[Held]":
        opened: Future[Any] = Future()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollouts")
        self._closed: Future[Any] = self._thread.submit(asyncio.run, self._hold(opened))
        try:
            wait([opened, self._closed], return_when=FIRST_COMPLETED)
        except BaseException:
            self._interrupted.set_result(None)
            self._thread.shutdown()
            raise
        if not opened.done():
            self._close()
        self.held = opened.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end in the context's loop; an interrupt of the wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _tracked(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.current_task()
        assert task is not None, "coroutines run in tasks"
        self._running.add(task)
        try:
            return await work
        finally:
            self._running.discard(task)

    async def _hold(self, opened: Future[Any]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        holding = asyncio.current_task()
        assert holding is not None, "coroutines run in tasks"
        self._interrupted.add_done_callback(lambda _: self._loop.call_soon_threadsafe(holding.cancel))
        async with self._context as held:
            opened.set_result(held)
            await self._end.wait()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _close(self) -> None:
        self._thread.shutdown()
        self._closed.result()
