import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends import create_backend
from backends.nomad import reap
from backends.nomad_api import NomadApi
from backends.nomad_job import NomadLimits, job_request
from backends.owner import Owner
from tests.backends.host_processes import new_mark, sleeping, until
from tests.backends.network import network_to
from tests.backends.nomad_server import nomad_server
from trajectories.errors import CapacityExceeded, SandboxDied, SandboxUnavailable

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
IMAGE = "lachesis-slots"


@pytest.fixture
async def server():
    async with nomad_server() as server:
        yield server


def nomad(server, **options):
    limits = {"warm": 0, "disk_mb": 64, "container_memory_mb": 1024, "image": IMAGE, "max_creating": 16}
    return create_backend("nomad", **{**limits, "address": server.url, **options})


async def busy(slot):
    """Start a command that does not end, wait until it runs, and return it with its mark."""
    mark = new_mark()
    running = asyncio.create_task(slot.exec(f"echo partial; sleep {mark}"))
    await until(lambda: sleeping(mark))
    return running, mark


async def until_containers(server, count):
    async with asyncio.timeout(120):
        while len(await server.containers()) != count:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.05)


async def test_slots_share_containers_and_containers_follow_the_demand(server):
    async with nomad(server, slots_per_container=3, idle_s=0.4) as backend:
        slots = await asyncio.gather(*(backend.acquire(str(n)) for n in range(7)))
        assert len(await server.containers()) == 3
        results = await asyncio.gather(*(slot.exec("echo $$ >f; cat f") for slot in slots))
        assert [result.exit_code for result in results] == [0] * 7
        for slot in slots[1:]:
            await backend.release(slot)
        await until_containers(server, 1)
        assert (await slots[0].exec("echo still here")).stdout == "still here\n"
    assert await server.containers() == []
    assert server.jobs == {}


async def test_a_full_house_says_so(server):
    async with nomad(server, slots_per_container=1, max_containers=1) as backend, backend.acquire("a"):
        with pytest.raises(CapacityExceeded, match="max_containers"):
            await backend.acquire("b")


async def test_a_stream_that_is_cut_is_a_sandbox_that_died_and_leaves_nothing(server):
    async with nomad(server) as backend:
        async with backend.acquire("a") as slot:
            running, mark = await busy(slot)
            server.cut()
            with pytest.raises(SandboxDied, match="was cut"):
                await running
            await until(lambda: not sleeping(mark))
        async with backend.acquire("b") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"
    await until_containers(server, 0)


async def test_a_container_that_is_killed_is_a_sandbox_that_died_and_is_replaced(server):
    async with nomad(server) as backend:
        async with backend.acquire("a") as slot:
            running, _ = await busy(slot)
            (container,) = await server.containers()
            await server.engine.call("POST", f"/containers/{container}/kill")
            with pytest.raises(SandboxDied):
                await running
        async with backend.acquire("b") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_a_container_that_ended_leaves_its_room_at_once_though_some_hold_slots_of_it(server):
    async with nomad(server, slots_per_container=2, max_containers=1) as backend:
        slots = [await backend.acquire(name) for name in "ab"]
        (container,) = await server.containers()
        await server.engine.call("POST", f"/containers/{container}/kill")
        for slot in slots:
            with pytest.raises(SandboxDied):
                await slot.exec("sleep 600")
        async with backend.acquire("c") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_a_network_that_goes_silent_ends_the_sandbox_on_both_sides(server, monkeypatch):
    monkeypatch.setattr("backends.nomad_api.HEARTBEAT_S", 4.0)
    async with network_to(int(server.url.rpartition(":")[2])) as network:
        address = f"http://127.0.0.1:{network.port}"
        backend = nomad(server, address=address, lease_s=5)
        await backend.start()
        slot = await backend.acquire("a")
        running, mark = await busy(slot)
        network.go_silent()
        with pytest.raises(SandboxDied):
            await running
        await until(lambda: not sleeping(mark))
        network.refuse()
        await backend.stop()


HARNESS = """
import asyncio, sys
from backends import create_backend

async def main():
    options, sleep = {"image": "lachesis-slots", "address": sys.argv[1]}, f"sleep {sys.argv[2]}"
    async with create_backend("nomad", warm=0, disk_mb=64, **options) as backend:
        slots = [await backend.acquire(str(n)) for n in range(2)]
        for slot in slots:
            await slot.exec(f"(setsid {sleep} &); setsid nohup {sleep} & true")
        print("ready", flush=True)
        await slots[0].exec(sleep)

asyncio.run(main())
"""


async def test_containers_die_with_a_killed_harness_and_their_jobs_are_purged(server):
    mark = new_mark()
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, server.url, mark, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert await harness.stdout.readline() == b"ready\n"
    await until(lambda: len(sleeping(mark)) == 5)
    harness.send_signal(signal.SIGKILL)
    await harness.wait()
    await until(lambda: not sleeping(mark))
    await until_containers(server, 0)
    (dead,) = server.jobs
    async with nomad(server):
        assert dead not in server.jobs
    assert server.jobs == {}


async def test_a_container_nobody_comes_for_ends_by_itself(server):
    api = NomadApi(server.url, None, {})
    try:
        await api.call("PUT", "/jobs", job_request("lachesis-x", IMAGE, NomadLimits(lease_s=3), {}))
        await until_containers(server, 1)
        await until_containers(server, 0)
        await until(lambda: server.jobs["lachesis-x"].status == "complete")
    finally:
        await api.close()


async def test_the_reaper_purges_what_nobody_will_come_back_for_and_nothing_else(server):
    server.holds_back = True
    me = Owner.current()
    dead = Owner(me.pid, me.started_ticks - 1, me.boot_id)
    elsewhere = Owner(me.pid, me.started_ticks - 1, "another boot")
    metas = {
        "lachesis-mine": me.labels(),
        "lachesis-elsewhere": elsewhere.labels(),
        "lachesis-dead": dead.labels(),
        "lachesis-expired": {**elsewhere.labels(), "lachesis.expires": "1"},
        "other": dead.labels(),
    }
    api = NomadApi(server.url, None, {})
    try:
        for name, meta in metas.items():
            await api.call("PUT", "/jobs", job_request(name, IMAGE, NomadLimits(), meta))
        assert sorted(await reap(api)) == ["lachesis-dead", "lachesis-expired"]
        assert sorted(server.jobs) == ["lachesis-elsewhere", "lachesis-mine", "other"]
    finally:
        await api.close()


async def test_a_job_that_finds_no_node_is_given_up_with_the_reason(server):
    server.holds_back = True
    with pytest.raises(SandboxUnavailable, match=r"no container within 0\.2 s: no node fits: .*memory"):
        await nomad(server, place_timeout_s=0.2).start()
    assert server.jobs == {}


async def test_an_image_that_cannot_be_run_is_given_up_with_what_nomad_says(server):
    with pytest.raises(SandboxUnavailable, match="the container is failed: Failed to create"):
        await nomad(server, image="no-such-image").start()
    assert server.jobs == {}


async def test_an_image_without_bubblewrap_says_what_to_install(server):
    with pytest.raises(SandboxUnavailable, match="has no 'bwrap': install bubblewrap"):
        await nomad(server, image="lachesis-test").start()
    assert server.jobs == {}


async def test_tasks_can_ask_for_images_of_their_own(server):
    async with nomad(server) as backend, backend.acquire("a", image="lachesis-slots:latest") as slot:
        assert (await slot.exec("echo fine")).stdout == "fine\n"
        assert len(await server.containers()) == 2


async def test_a_token_comes_from_a_file_and_is_needed(server, tmp_path):
    server.token = "secret"
    with pytest.raises(SandboxUnavailable, match="403 Permission denied") as refusal:
        await nomad(server).start()
    assert not refusal.value.retryable
    (tmp_path / "token").write_text("secret\n")
    async with nomad(server, token_file=str(tmp_path / "token")) as backend, backend.acquire("a") as slot:
        assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_an_agent_that_is_not_there_is_named():
    with pytest.raises(SandboxUnavailable, match=r"http://127\.0\.0\.1:1 can't be reached"):
        await create_backend("nomad", address="http://127.0.0.1:1").start()


def test_other_drivers_are_a_matter_of_configuration():
    limits = NomadLimits(driver="singularity", driver_config={"image": "docker://debian", "command": "exec"})
    (group,) = job_request("x", "debian", limits, {})["Job"]["TaskGroups"]
    (task,) = group["Tasks"]
    assert (task["Driver"], task["Config"]["image"]) == ("singularity", "docker://debian")
    assert (group["RestartPolicy"]["Attempts"], group["ReschedulePolicy"]["Attempts"]) == (0, 0)
