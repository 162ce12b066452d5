"""Every backend behaves as the contract says; where one is known not to, it must still fail there."""

import pytest

from backends import create_backend
from backends.conformance import CHECKS, GAPS, run_check

SMALL = {"disk_mb": 64, "memory_mb": 1024}

OPTIONS = {"local": SMALL, "docker": {"image": "lachesis-test", **SMALL}}


def cases():
    for kind in OPTIONS:
        for check in CHECKS:
            marks = [pytest.mark.docker] if kind == "docker" else []
            if check.name in GAPS[kind]:
                marks.append(pytest.mark.xfail(reason=GAPS[kind][check.name], strict=True))
            yield pytest.param(kind, check, marks=marks, id=f"{kind}-{check.name}")


@pytest.mark.parametrize(("kind", "check"), list(cases()))
async def test_the_backend_conforms(kind, check):
    await run_check(check, lambda **options: create_backend(kind, **OPTIONS[kind], **options))


@pytest.mark.parametrize("kind", [pytest.param("docker", marks=pytest.mark.docker), "local"])
async def test_files_can_be_made_until_there_are_as_many_as_allowed(kind):
    async with (
        create_backend(kind, **OPTIONS[kind], inodes=500, warm=0) as backend,
        backend.acquire("a") as slot,
    ):
        result = await slot.exec("for i in {1..1000}; do : >f$i || break; done; ls | wc -l")
        assert "No space left" in result.stderr
        assert 100 < int(result.stdout) <= 500
        assert (await slot.exec("rm f*; echo fine >file; cat file")).stdout == "fine\n"
