"""Servers for tests: in this process, or as the command that users run."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rollouts.api.client import RolloutClient
from rollouts.api.server import running_server
from rollouts.api.settings import ServerConfig

ROOT = Path(__file__).parents[3]


def config_in(tmp_path: Path, **changes) -> ServerConfig:
    return ServerConfig(**{"port": 0, "store": str(tmp_path / "rollouts.db"), **changes})


@asynccontextmanager
async def client_of(config: ServerConfig, *, give_up_after_s: float = 20.0) -> AsyncIterator[RolloutClient]:
    """A server in this process and a client of it."""
    async with running_server(config) as url, RolloutClient(url, give_up_after_s=give_up_after_s) as client:
        yield client


async def run(*command: str, **variables: str) -> tuple[int, str]:
    """Run a command to its end; gives exit code and output, with what it logged where it failed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, logged = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + logged if process.returncode else out).decode()
