"""Slots of every backend that can be had here, so that each tool is tested on all of them."""

import sys

import pytest
import pytest_asyncio

from backends import create_backend
from tests.backends.conftest import DOCKER_SOCKET
from tests.real_parts import unavailable
from tests.toolsets.calling import Caller

BACKENDS = {"local": {"python": sys.prefix}, "docker": {"image": "lachesis-test"}}


@pytest_asyncio.fixture(
    scope="session",
    loop_scope="session",
    params=["local", pytest.param("docker", marks=pytest.mark.docker)],
)
async def backend(request):
    """A started backend, shared by the tests."""
    if request.param == "docker" and not DOCKER_SOCKET.exists():
        unavailable("no Docker engine here; .ci/docker starts one and makes the test image")
    async with create_backend(request.param, **BACKENDS[request.param]) as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="session")
async def call(backend):
    """A caller with a fresh slot."""
    async with backend.acquire("task") as slot:
        yield Caller(slot)
