"""A process whose input goes out in messages, each awaited: what is written meanwhile is buffered here.

Where its outputs come from, and how a message is sent, is its subclass's business.
"""

import asyncio
from abc import abstractmethod

from typing_extensions import override

from backends.link import STDOUT, Receive
from backends.remote import Lost, Process
from trajectories.errors import SandboxDied

END_TIMEOUT_S = 10.0
MAX_BUFFERED_BYTES = 256 * 1024


class BufferedProcess(Process):
    """A process that one task listens to and another one talks to."""

    message_bytes: int
    """Most bytes of input in one message."""

    def __init__(self, receive: Receive, lost: Lost):
        self._receive: Receive | None = receive
        self._lost = lost
        self._unsent = bytearray()
        self._eof = False
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._over = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._talk())]

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
            raise SandboxDied("the end of a process was not confirmed") from None
        finally:
            self.close()

    def received(self, channel: int, data: bytes) -> None:
        """Pass output on."""
        if self._receive is not None and data:
            self._receive(channel, data)

    @abstractmethod
    async def listen(self) -> str | None:
        """Call `received` until the process has ended; return why it was lost instead, if it was."""

    @abstractmethod
    async def say(self, data: bytes) -> bool:
        """Send input; False if that can't be done any more."""

    @abstractmethod
    async def say_end(self) -> None:
        """Send the end of the input."""

    async def _run(self) -> None:
        try:
            cause = await self.listen()
            if cause is not None and self._receive is not None:
                self._lost(cause)
        finally:
            self._over.set()
            self._drained.set()
            self._wake.set()
            receive, self._receive = self._receive, None
            if receive is not None:
                receive(STDOUT, b"")

    async def _talk(self) -> None:
        while not self._over.is_set():
            await self._wake.wait()
            self._wake.clear()
            while self._unsent and not self._over.is_set():
                data = bytes(self._unsent[: self.message_bytes])
                del self._unsent[: len(data)]
                if not await self.say(data):
                    self._drained.set()
                    return
                if len(self._unsent) <= MAX_BUFFERED_BYTES:
                    self._drained.set()
            if self._eof:
                await self.say_end()
                return
