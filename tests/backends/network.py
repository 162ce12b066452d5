"""A network that can be cut, and one that goes silent."""

import asyncio
from contextlib import asynccontextmanager


class Network:
    """Carries bytes between two ports of loopback."""

    def __init__(self, target: int):
        self.port = 0
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self.refuses = False
        self.connections = 0
        """How many there have been."""
        self._writers: list[asyncio.StreamWriter] = []

    def go_silent(self) -> None:
        """Carry nothing any more, and tell nobody."""
        self._open.clear()

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def refuse(self) -> None:
        """Break every connection, and take no other."""
        self.refuses = True
        self.cut()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refuses:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def network_to(target: int):
    """Carry connections to a port until the block ends; a silent network stays so for what still waits."""
    network = Network(target)
    server = await asyncio.start_server(network.carry, "127.0.0.1", 0)
    network.port = server.sockets[0].getsockname()[1]
    try:
        yield network
    finally:
        server.close()
        network.cut()
        network._open.set()
        await asyncio.sleep(0)
