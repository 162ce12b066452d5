from pathlib import Path

import pytest

from tests.backends.sshd import sshd_with
from tests.real_parts import unavailable

DOCKER_SOCKET = Path("/var/run/docker.sock")


@pytest.fixture(autouse=True)
def _docker_engine(request):
    if request.node.get_closest_marker("docker") and not DOCKER_SOCKET.exists():
        unavailable("no Docker engine here; .ci/docker starts one and makes the test image")


@pytest.fixture(scope="session")
def sshd():
    """A real SSH server on loopback."""
    with sshd_with() as server:
        yield server
