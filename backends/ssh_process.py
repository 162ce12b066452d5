"""A process behind an SSH channel."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from typing_extensions import override

from backends.link import STDERR, STDOUT, PushedLink, Receive
from backends.remote import Lost, Process
from trajectories.errors import SandboxDied

if TYPE_CHECKING:
    import asyncssh

END_TIMEOUT_S = 10.0


class SshProcess(PushedLink, Process):
    """A process on an SSH channel. It has the methods that asyncssh calls on a session."""

    def __init__(self, receive: Receive, lost: Lost, ended: Callable[[], None]):
        super().__init__()
        self._receive: Receive | None = receive
        self._lost = lost
        self._ended = ended
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._over = asyncio.Event()

    @override
    def write(self, data: bytes) -> None:
        if self._channel is not None:
            with suppress(BrokenPipeError):  # the end of its outputs will say so
                self._channel.write(data)

    @override
    def close(self) -> None:
        self._receive = None
        if self._channel is not None:
            self._channel.abort()

    @override
    async def end(self) -> None:
        self._receive = None
        assert self._channel is not None
        for end in (self._channel.write_eof, self._channel.kill):
            with suppress(OSError, TimeoutError):
                end()
                async with asyncio.timeout(END_TIMEOUT_S):
                    await self._over.wait()
            if self._over.is_set():
                return
        self.close()
        raise SandboxDied("the host did not confirm the end of a sandbox")

    def abandon(self) -> None:
        """Give up a process that could not be started."""
        self._receive = None
        if self._channel is not None:
            self._channel.abort()
        if not self._over.is_set():
            self.connection_lost(None)

    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        """Take the channel."""
        self._channel = chan

    def session_started(self) -> None:
        """Do nothing: the program is sent once the caller has the process."""

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Pass output on."""
        if self._receive is not None:
            self._receive(STDOUT if datatype is None else STDERR, data)

    def eof_received(self) -> bool:
        """Note the end of the outputs; the channel stays until the process has ended too."""
        self._finish()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the channel; an exception means that it ended because the connection did."""
        if self._over.is_set():
            return
        if exc is not None and self._receive is not None:
            self._lost(f"the connection to the host was lost: {exc}")
        self._finish()
        self._over.set()
        self.resume_writing()
        self._ended()

    def xon_xoff_requested(self, client_can_do: bool) -> None:
        """Do nothing: there is no terminal."""

    def exit_status_received(self, status: int) -> None:
        """Do nothing: a process tells by its output how it fared."""

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """Do nothing: the end of the outputs tells."""

    def _finish(self) -> None:
        receive, self._receive = self._receive, None
        if receive is not None:
            receive(STDOUT, b"")
