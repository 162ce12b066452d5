"""A `Link` over plain file descriptors: pipes to a process of this host."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain

from typing_extensions import override

from backends.link import STDERR, STDOUT, Link, Receive
from trajectories.errors import SandboxUnavailable

READ_BYTES = 256 * 1024
"""More than a pipe holds, so that one read empties it."""
MAX_BUFFERED_BYTES = 256 * 1024


def make_pipes(count: int) -> list[tuple[int, int]]:
    """Return pipes, as pairs of an end to read from and one to write to.

    Raises:
        SandboxUnavailable: This process has too few descriptors left.
    """
    made = list[tuple[int, int]]()
    try:
        while len(made) < count:
            made.append(os.pipe())
    except OSError as error:
        for fd in chain(*made):
            os.close(fd)
        raise SandboxUnavailable(f"no pipe to a sandbox could be made: {error.strerror}") from error
    return made


class PipeReader:
    """Owns one descriptor to read, and passes on what arrives; no bytes at its end."""

    def __init__(self, fd: int, receive: Callable[[bytes], None]):
        self._fd = fd
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self.poll)

    def poll(self) -> None:
        """Receive what is there."""
        if self._fd < 0:
            return
        with suppress(BlockingIOError):
            data = os.read(self._fd, READ_BYTES)
            if not data:
                self._loop.remove_reader(self._fd)
            self._receive(data)

    def close(self) -> None:
        """Stop receiving and free the descriptor; idempotent."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class PipeLink(Link):
    """Owns one descriptor to write and two to read; all are made non-blocking.

    asyncio's own pipe transports would cost three times as much per command.
    """

    in_order = True

    def __init__(self, stdin: int, stdout: int, stderr: int, receive: Receive):
        self._loop = asyncio.get_running_loop()
        self._stdin = stdin
        self._outputs = [
            PipeReader(fd, partial(receive, channel)) for channel, fd in ((STDOUT, stdout), (STDERR, stderr))
        ]
        self._unsent = bytearray()
        self._drained = asyncio.Event()
        self._drained.set()
        self._closed = False
        os.set_blocking(stdin, False)

    @override
    def write(self, data: bytes) -> None:
        if self._closed:
            return
        if not self._unsent:
            data = data[self._send(data) :]
        if data:
            self._unsent += data
            self._loop.add_writer(self._stdin, self._flush)
            if len(self._unsent) > MAX_BUFFERED_BYTES:
                self._drained.clear()

    @override
    async def drain(self) -> None:
        await self._drained.wait()

    @override
    def poll(self) -> None:
        for output in self._outputs:
            output.poll()

    @override
    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for output in self._outputs:
            output.close()
        self._loop.remove_writer(self._stdin)
        os.close(self._stdin)
        self._drained.set()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)  # nobody reads any more; the end of the outputs will say so

    def _flush(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if len(self._unsent) <= MAX_BUFFERED_BYTES:
            self._drained.set()
        if not self._unsent:
            self._loop.remove_writer(self._stdin)
