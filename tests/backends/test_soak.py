import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.backends.modal_server import modal_server
from tests.backends.nomad_server import nomad_server

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("soak")


async def soak(kind, *arguments, **options):
    """Run the soak of a backend, and return what it reports of one that left nothing."""
    settings = [f"{name}={json.dumps(value)}" for name, value in options.items()]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.soak_sandboxes", kind, *settings, *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, out.decode() + err.decode()
    report = json.loads(out)
    assert not any(report["left"].values())
    return report


async def test_local_sandboxes_leave_nothing_after_a_short_soak():
    report = await soak("local", "--cycles", "60", "--in-flight", "16", "--kills", "3")
    assert report["cycles"] >= 60
    assert report["harness_kills"] == 3


SHORT = ("--cycles", "16", "--in-flight", "4", "--kills", "1")


@pytest.mark.docker
async def test_containers_leave_nothing_after_a_short_soak():
    assert (await soak("docker", *SHORT, image="lachesis-test"))["harness_kills"] == 1


async def test_a_host_behind_ssh_is_left_with_nothing_after_a_short_soak(sshd):
    assert (await soak("ssh", *SHORT, **sshd.options))["harness_kills"] == 1


@pytest.mark.docker
async def test_containers_of_nomad_leave_nothing_after_a_short_soak():
    async with nomad_server() as server:
        options = {"address": server.url, "image": "lachesis-slots", "container_memory_mb": 1024}
        assert (await soak("nomad", *SHORT, **options))["harness_kills"] == 1
        assert (await server.containers(), server.jobs) == ([], {})


async def test_sandboxes_on_modal_leave_nothing_after_a_short_soak(monkeypatch):
    async with modal_server() as server:
        server.use(monkeypatch)
        assert (await soak("modal", *SHORT, lease_s=5))["harness_kills"] == 1
        assert server.running() == []
