import pytest

from backends import create_backend
from backends.conformance import CHECKS, GAPS, run_check

SMALL = {"disk_mb": 64, "memory_mb": 1024}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_local_conforms(check):
    def factory(**options):
        return create_backend("local", **SMALL, **options)

    if check.name in GAPS["local"]:
        pytest.skip(f"named gap: {GAPS['local'][check.name]}")
    await run_check(check, factory)
