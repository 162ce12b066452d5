"""A process in a Modal sandbox.

The SDK reads and writes by offset and resumes by itself after a short break, so nothing arrives twice. What
it gives up on is lost; an output that ends is believed only when the exit code can be had, too.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from backends.link import STDERR, STDOUT, Receive
from backends.remote import Lost, Process
from trajectories.errors import SandboxDied

if TYPE_CHECKING:
    from modal.io_streams import StreamReader

END_TIMEOUT_S = 10.0
MAX_BUFFERED_BYTES = 256 * 1024
MESSAGE_BYTES = 1024 * 1024


class ModalProcess(Process):
    """A process with its three streams."""

    def __init__(self, process: Any, receive: Receive, lost: Lost):
        self._process = process
        self._receive: Receive | None = receive
        self._lost = lost
        self._unsent = bytearray()
        self._eof = False
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._over = asyncio.Event()
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._send())]

    @override
    def write(self, data: bytes) -> None:
        self._unsent += data
        self._wake.set()
        if len(self._unsent) > MAX_BUFFERED_BYTES and not self._over.is_set():
            self._drained.clear()

    @override
    async def drain(self) -> None:
        await self._drained.wait()

    @override
    def poll(self) -> None:
        """Do nothing: what is here has been received."""

    @override
    def close(self) -> None:
        self._receive = None
        for task in self._tasks:
            task.cancel()
        self._drained.set()

    @override
    async def end(self) -> None:
        self._receive = None
        self._eof = True
        self._wake.set()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._over.wait()
        except TimeoutError:
            raise SandboxDied("Modal did not confirm the end of a process") from None
        finally:
            self.close()

    async def _watch(self) -> None:
        """Read until the process has ended."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(STDOUT, self._process.stdout))
                group.create_task(self._read(STDERR, self._process.stderr))
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait.aio()
        except (
            Exception
        ) as error:  # whatever the SDK or the network raises means that nothing is known any more
            reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            if self._receive is not None:
                self._lost(f"the stream to the sandbox was lost: {reason!r}")
        finally:
            self._over.set()
            self._drained.set()
            self._wake.set()
            receive, self._receive = self._receive, None
            if receive is not None:
                receive(STDOUT, b"")

    async def _read(self, channel: int, stream: "StreamReader[bytes]") -> None:
        async for data in stream:
            if self._receive is not None:
                self._receive(channel, data)

    async def _send(self) -> None:
        while not self._over.is_set():
            await self._wake.wait()
            self._wake.clear()
            while self._unsent and not self._over.is_set():
                data = bytes(self._unsent[:MESSAGE_BYTES])
                del self._unsent[: len(data)]
                self._process.stdin.write(data)
                if not await self._flush():
                    return
                if len(self._unsent) <= MAX_BUFFERED_BYTES:
                    self._drained.set()
            if self._eof:
                self._process.stdin.write_eof()
                await self._flush()
                return

    async def _flush(self) -> bool:
        """Send what was written; False if that can't be done, and then nothing more is sent."""
        try:
            await self._process.stdin.drain.aio()
        except Exception as error:  # as in `_watch`
            if self._receive is not None:
                self._lost(f"the stream to the sandbox was lost: {error!r}")
            self._drained.set()
            return False
        return True
