"""A process in a Modal sandbox.

The SDK reads and writes by offset and resumes by itself after a short break, so nothing arrives twice. What
it gives up on is lost; an output that ends is believed only when the exit code can be had, too.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from backends.buffered_process import BufferedProcess
from backends.link import STDERR, STDOUT, Receive
from backends.remote import Lost

if TYPE_CHECKING:
    from modal.io_streams import StreamReader

EXIT_CODE_TIMEOUT_S = 10.0


class ModalProcess(BufferedProcess):
    """A process with its three streams.

    Args:
        process: A `modal.container_process.ContainerProcess` of bytes.
        receive: Gets its output.
        lost: Told when the SDK gives up.
    """

    message_bytes = 1024 * 1024

    def __init__(self, process: Any, receive: Receive, lost: Lost):
        self._process = process
        super().__init__(receive, lost)

    @override
    async def listen(self) -> str | None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(STDOUT, self._process.stdout))
                group.create_task(self._read(STDERR, self._process.stderr))
            async with asyncio.timeout(EXIT_CODE_TIMEOUT_S):
                await self._process.wait.aio()
        except Exception as error:  # whatever is raised means that nothing is known of it any more
            reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            return f"the stream to the sandbox was lost: {reason!r}"
        return None

    @override
    async def say(self, data: bytes) -> bool:
        self._process.stdin.write(data)
        return await self._flush()

    @override
    async def say_end(self) -> None:
        self._process.stdin.write_eof()
        await self._flush()

    async def _read(self, channel: int, stream: "StreamReader[bytes]") -> None:
        async for data in stream:
            self.received(channel, data)

    async def _flush(self) -> bool:
        try:
            await self._process.stdin.drain.aio()
        except Exception as error:  # as in `listen`
            if self._receive is not None:
                self._lost(f"the stream to the sandbox was lost: {error!r}")
            return False
        return True
