import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import pytest_asyncio

from backends import checks_endings, checks_users, create_backend, docker_sandbox, reaper
from backends.check import collected
from backends.docker import DockerLimits, container_request
from backends.docker_api import DockerApi, EngineError, HijackedStream
from backends.docker_images import DockerImages
from backends.docker_sandbox import DockerSandbox, NearbyContainer
from backends.owner import Owner
from backends.warden import Warden
from tests.backends.conftest import DOCKER_SOCKET
from tests.backends.host_processes import new_mark, sleeping, until
from trajectories.errors import ConfigError, LeaseExpired, SandboxDied, SandboxUnavailable

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]


def docker(**options):
    return create_backend("docker", **{"image": "lachesis-test", "warm": 0, **options})


@pytest.fixture
async def api():
    api = DockerApi()
    yield api
    await api.close()


async def containers(api, label="lachesis.run"):
    listed = await api.call("GET", "/containers/json", all=True, filters={"label": [label]})
    return {entry["Id"] for entry in listed}


async def gone(api, container):
    async with asyncio.timeout(120):
        while container in await containers(api):  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.05)


async def test_a_container_killed_mid_command_is_a_sandbox_that_died(api):
    mark = new_mark()
    async with docker() as backend, backend.acquire("a") as slot:
        running = asyncio.create_task(slot.exec(f"echo partial; sleep {mark}"))
        await until(lambda: sleeping(mark))
        await api.call("POST", f"/containers/{slot.machine.sandbox.container}/kill")
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxDied):
            await slot.exec("echo never", shell="other")


HARNESS = """
import asyncio
from backends import create_backend

async def main():
    async with create_backend("docker", image="lachesis-test", warm=0) as backend:
        async with backend.acquire("a") as slot:
            await slot.exec("(setsid sleep 600 &); sleep 600 & true")
            print(slot.machine.sandbox.container, flush=True)
            await slot.exec("sleep 600")

asyncio.run(main())
"""


async def test_a_container_dies_with_a_killed_harness(api):
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, cwd=ROOT, stdout=subprocess.PIPE
    )
    container = (await harness.stdout.readline()).decode().strip()
    assert container in await containers(api)
    harness.send_signal(signal.SIGKILL)
    await harness.wait()
    await gone(api, container)


async def test_shells_of_an_engine_on_this_host_bypass_the_engine():
    async with docker() as backend, backend.acquire("a") as slot:
        assert isinstance(slot.machine.sandbox, NearbyContainer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def distant():
    """The engine as another host would reach it: through TCP."""

    async def relay(reader, writer):
        to_engine = await asyncio.open_unix_connection(str(DOCKER_SOCKET))
        await asyncio.gather(pump(reader, to_engine[1]), pump(to_engine[0], writer), return_exceptions=True)

    async def pump(reader, writer):
        try:
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()


STREAMED = [check for check in collected(checks_endings) if "fork_bomb" not in check.name]


@pytest.mark.parametrize("check", STREAMED, ids=lambda check: check.name)
@pytest.mark.asyncio(loop_scope="module")
async def test_shells_of_a_distant_engine_end_commands_as_near_ones_do(distant, check):
    def factory(**options):
        return docker(host=distant, disk_mb=64, memory_mb=1024, **options)

    async with asyncio.timeout(120):
        await check.run(factory)


async def test_a_release_removes_the_container(api):
    async with docker() as backend:
        slot = await backend.acquire("a")
        container = slot.machine.sandbox.container
        assert container in await containers(api)
        await backend.release(slot)
        assert container not in await containers(api)


async def test_no_container_gets_a_network_of_its_own(api):
    async with docker() as backend, backend.acquire("a") as slot:
        seen = await api.call("GET", f"/containers/{slot.machine.sandbox.container}/json")
        assert set(seen["NetworkSettings"]["Networks"]) <= {"none"}


async def test_containers_are_hardened_and_labelled():
    request = container_request("image", DockerLimits(), {"lachesis.run": "x"})
    host = request["HostConfig"]
    assert (request["User"], request["NetworkDisabled"], request["StdinOnce"]) == ("1000:1000", True, True)
    assert (host["CapDrop"], host["SecurityOpt"], host["NetworkMode"]) == (
        ["ALL"],
        ["no-new-privileges"],
        "none",
    )
    assert (host["ReadonlyRootfs"], host["AutoRemove"], host["LogConfig"]) == (True, True, {"Type": "none"})
    assert host["PidsLimit"] and host["Memory"] == host["MemorySwap"] and host["NanoCpus"]
    assert "Binds" not in host and "Privileged" not in host


async def test_a_dead_engine_is_named():
    with pytest.raises(SandboxUnavailable, match=r"unix:///nonexistent\.sock can't be reached"):
        await docker(host="unix:///nonexistent.sock").start()


async def forget(api, image):
    """Take a test's image off the engine."""
    await api.call("DELETE", f"/images/{await DockerImages(api).resolve(image)}", force=True)


async def test_an_image_without_a_shell_is_refused_with_what_the_engine_said(api, tmp_path):
    with tarfile.open(tmp_path / "empty.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(f"made at {time.time()}"))
    image = f"rootfs:{tmp_path / 'empty.tar'}"
    with pytest.raises(SandboxUnavailable, match="bash"):
        await docker(image=image).start()
    of_the_image = {"ancestor": [await DockerImages(api).resolve(image)]}
    assert not await api.call("GET", "/containers/json", all=True, filters=of_the_image)
    await forget(api, image)


async def test_images_are_built_from_a_context_once(api, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM lachesis-test\nCOPY note /note\n")
    (tmp_path / "note").write_text(f"made at {time.time()}")
    async with docker(image=f"context:{tmp_path}") as backend, backend.acquire("a") as slot:
        assert (await slot.exec("cat /note")).stdout == (tmp_path / "note").read_text()
    await forget(api, f"context:{tmp_path}")


def least_rootfs(path):
    """Pack what a container needs at least: bash and a few programs, with the libraries they load."""
    wanted = {}
    for program in ("bash", "cat", "mkfifo"):
        wanted[f"bin/{program}"] = shutil.which(program)
        libraries = subprocess.run(["ldd", shutil.which(program)], capture_output=True, text=True, check=True)
        for library in re.findall(r"(/\S+) \(0x", libraries.stdout):
            wanted[library.lstrip("/")] = library
    with tarfile.open(path, "w", dereference=True) as tar:
        for name, source in wanted.items():
            tar.add(source, name)
        tar.addfile(tarfile.TarInfo(f"made at {time.time()}"))


async def test_images_are_imported_from_a_root_file_system_once(api, tmp_path):
    least_rootfs(tmp_path / "least.tar")
    for _ in range(2):
        async with docker(image=f"rootfs:{tmp_path / 'least.tar'}") as backend, backend.acquire("a") as slot:
            assert (
                await slot.exec("echo x >file; cat file; echo /bin/*")
            ).stdout == "x\n/bin/bash /bin/cat /bin/mkfifo\n"
    await forget(api, f"rootfs:{tmp_path / 'least.tar'}")


@pytest.mark.parametrize("image", ["context:/nonexistent", "rootfs:/nonexistent.tar"])
async def test_an_image_that_is_not_there_is_a_configuration_error(image):
    with pytest.raises(ConfigError, match="/nonexistent"):
        await docker(image=image).start()


async def test_tasks_can_ask_for_images_of_their_own():
    async with docker() as backend:
        async with backend.acquire("a", image="lachesis-test:latest") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"
        with pytest.raises(SandboxUnavailable, match="no-such-image"):
            await backend.acquire("b", image="localhost:1/no-such-image:1")


async def create(api, labels):
    request = {**container_request("lachesis-test", DockerLimits(), labels)}
    return (await api.call("POST", "/containers/create", request))["Id"]


@pytest.mark.xdist_group("soak")  # whose reaper would take what this one makes
async def test_the_reaper_takes_what_nobody_will_come_back_for_and_nothing_else(api):
    me, soon = Owner.current(), str(int(time.time()) + 3600)
    dead = Owner(me.pid, me.started_ticks - 1, me.boot_id)
    elsewhere = Owner(me.pid, me.started_ticks - 1, "another boot")
    mine = {"lachesis.run": "test", "lachesis.expires": soon}
    kept = [
        await create(api, {**mine, **me.labels()}),
        await create(api, {**mine, **elsewhere.labels()}),
        await create(api, {**mine}),
        await create(api, {"unrelated": "1"}),
    ]
    taken = {
        await create(api, {**mine, **dead.labels()}): "owner gone",
        await create(api, {**mine, **elsewhere.labels(), "lachesis.expires": "1"}): "expired",
    }
    try:
        young = await reaper.orphans(api)
        assert not {orphan.container for orphan in young} & {*kept, *taken}
        reaped = {orphan.container: orphan.reason for orphan in await reaper.reap(api, min_age_s=0)}
        assert {name: reason for name, reason in reaped.items() if name in {*kept, *taken}} == taken
        left = await containers(api, "unrelated") | await containers(api)
        assert set(kept) <= left and not left & taken.keys()
    finally:
        for container in kept:
            await api.call("DELETE", f"/containers/{container}", force=True)


async def test_the_reapers_command_line_can_only_look(capsys):
    await reaper.main(["--dry-run", "--min-age-s", "1e12"])
    assert capsys.readouterr().out == "0 container(s) would be removed\n"


async def test_frames_arrive_whole_however_they_are_cut():
    answer = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"
    frames = b"\1\0\0\0\0\0\0\5hello\2\0\0\0\0\0\0\1!\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\2ok"
    for size in (1, 3, 7, 1000):
        heard = []
        stream = HijackedStream(lambda channel, data, heard=heard: heard.append((channel, data)))
        whole = answer + frames
        for start in range(0, len(whole), size):
            stream.data_received(whole[start : start + size])
        await stream.upgraded
        assert [entry for entry in heard if entry[1]] == [(1, b"hello"), (2, b"!"), (1, b"ok")]


async def test_a_refused_stream_raises_what_the_engine_said():
    stream = HijackedStream(lambda channel, data: None)
    stream.data_received(b'HTTP/1.1 404 Not Found\r\n\r\n{"message":"no such container"}')
    with pytest.raises(EngineError, match="no such container"):
        await stream.upgraded


async def test_a_user_who_ends_their_own_warden_ends_the_sandbox():
    async with docker() as backend, backend.acquire("a") as slot:
        mark = new_mark()
        with pytest.raises(SandboxDied):
            await slot.exec(f"setsid sleep {mark} & kill -KILL -1; sleep {mark}", user="65534")
        for user in (None, "65534", "0"):
            with pytest.raises(SandboxDied):
                await slot.exec("true", user=user)
    assert sleeping(mark) == []


async def test_a_user_has_one_name():
    async with docker() as backend, backend.acquire("a") as slot:
        assert (await slot.exec("id -un", user="nobody")).stdout == "nobody\n"
        with pytest.raises(ValueError, match="'65534' is 'nobody' by another name"):
            await slot.exec("true", user="65534")
        assert (await slot.exec("id -un", user="nobody")).stdout == "nobody\n"


async def test_beside_root_there_is_no_other_user():
    async with docker(user="0:0") as backend, backend.acquire("a") as slot:
        with pytest.raises(ValueError, match="user: the agent is root"):
            await slot.exec("true", user="65534")


def test_the_agents_user_is_a_number():
    with pytest.raises(ConfigError, match="user: 'nobody' is not UID"):
        docker(user="nobody")


async def test_a_dead_sandbox_lets_no_user_in():
    async with docker() as backend, backend.acquire("a") as slot:
        await slot.exec("true", user="65534")
        slot.machine.warden.mourn("it reached its age")
        for user in (None, "65534", "0"):
            with pytest.raises(SandboxDied, match="it reached its age"):
                await slot.exec("true", user=user)


@pytest.mark.parametrize("reset_workspace", [True, False])
async def test_a_user_who_is_let_in_while_the_slot_is_released_runs_nothing(monkeypatch, reset_workspace):
    execute = DockerSandbox.execute
    entering = asyncio.Event()

    async def slowly(*arguments):
        entering.set()
        await asyncio.sleep(0.5)
        return await execute(*arguments)

    async with docker(reuse=True) as backend:
        slot = await backend.acquire("a")
        container = slot.machine.sandbox.container
        monkeypatch.setattr(DockerSandbox, "execute", slowly)
        stale = asyncio.create_task(slot.exec("touch /tmp/planted", user="0"))
        await entering.wait()
        await backend.release(slot, reset_workspace)
        with pytest.raises((SandboxDied, LeaseExpired)):
            await stale
        async with backend.acquire("a") as slot:
            assert (slot.machine.sandbox.container == container) != reset_workspace
            assert (await slot.exec("ls /tmp")).stdout == ""


async def test_users_work_where_the_engine_is_far_away(monkeypatch):
    monkeypatch.setattr(docker_sandbox, "_reach_into", lambda *arguments: None)
    for check in collected(checks_users):
        await check.run(docker_with_its_own_pool)


def docker_with_its_own_pool(**options):
    return create_backend("docker", **{"image": "lachesis-test", "disk_mb": 64, **options})


async def test_an_engine_that_is_away_is_not_the_callers_mistake(tmp_path):
    api = DockerApi(f"unix://{tmp_path}/unable/user/group.sock")
    with pytest.raises(SandboxDied, match="can't enter"):
        await DockerSandbox(api, "x", None, "/workspace").enter("0", Warden())
    await api.close()


async def test_a_container_that_another_user_worked_in_is_not_reused(caplog):
    async with docker(reuse=True) as backend:
        async with backend.acquire("a") as slot:
            container = slot.machine.sandbox.container
            await slot.exec("true", user="root")
        assert "a command of another user was asked for" in caplog.text
        async with backend.acquire("b") as slot:
            assert slot.machine.sandbox.container != container


async def test_a_container_that_dies_under_another_users_command_is_a_sandbox_that_died(api):
    mark = new_mark()
    async with docker() as backend, backend.acquire("a") as slot:
        running = asyncio.create_task(slot.exec(f"sleep {mark}", user="65534"))
        await until(lambda: sleeping(mark))
        await api.call("POST", f"/containers/{slot.machine.sandbox.container}/kill")
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxDied):
            await slot.exec("true", user="root")
