import pytest

from tests.environments.rolling import sandboxes


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
async def backend(request):
    async with sandboxes(request.param) as backend:
        yield backend


@pytest.fixture
async def local():
    async with sandboxes("local") as backend:
        yield backend
