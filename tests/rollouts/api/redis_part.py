"""A real Redis server on a port of its own."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scripts.free_port import free_port
from tests.real_parts import unavailable


@asynccontextmanager
async def redis_server(folder: Path, *flags: str, port: int | None = None) -> AsyncIterator[int]:
    """Run a server that syncs every write, unless the flags say otherwise, and kill it; gives its port."""
    if shutil.which("redis-server") is None:
        unavailable("there is no redis-server; run: .ci/redis")
    port = port or free_port()
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    process = await asyncio.create_subprocess_exec(
        *("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)),
        *durable,
        *flags,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async for line in process.stdout:
        if b"Ready to accept connections" in line:
            break
    try:
        yield port
    finally:
        process.kill()
        await process.wait()
