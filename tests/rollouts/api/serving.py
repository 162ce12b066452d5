"""Servers for tests: in this process, or as the command that users run."""

import asyncio
import os
import sys
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


async def start_server(tmp_path: Path, port: int, *flags: str) -> asyncio.subprocess.Process:
    """`python -m rollouts.api`; returns once it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "rollouts.api", "--port", str(port), "--store", str(tmp_path / "rollouts.db"), *flags),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"rollout API on" in await process.stdout.readline()
    return process
