from pathlib import Path

import pytest

DOCKER_SOCKET = Path("/var/run/docker.sock")


@pytest.fixture(autouse=True)
def _docker_engine(request):
    if request.node.get_closest_marker("docker") and not DOCKER_SOCKET.exists():
        pytest.skip("no Docker engine here; .ci/docker starts one and makes the test image")
