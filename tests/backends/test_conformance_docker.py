import pytest

from backends import create_backend
from backends.conformance import CHECKS, GAPS, run_check

SMALL = {"disk_mb": 64, "memory_mb": 1024}


@pytest.mark.docker
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_docker_conforms(check):
    def factory(**options):
        return create_backend("docker", image="lachesis-test", **SMALL, **options)

    if check.name in GAPS["docker"]:
        pytest.skip(f"named gap: {GAPS['local'][check.name]}")
    await run_check(check, factory)
