import asyncio
import errno
import gc
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from backends import create_backend
from backends.local import LocalLimits, LocalMaker
from backends.pipes import make_pipes
from backends.pool import DEFAULT
from backends.resources import USUAL
from tests.backends.host_processes import new_mark, sleeping, until
from trajectories.errors import ConfigError, SandboxDied, SandboxUnavailable

ROOT = Path(__file__).parents[2]


def descriptors():
    """Return what is open here; what other tests left to the garbage collector is closed first."""
    gc.collect()
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists the folder is gone by now
            found.add(f"{entry.name} {entry.readlink()}")
    return found


async def test_a_release_frees_every_descriptor_and_process():
    async with create_backend("local", warm=0) as backend:
        await backend.release(await backend.acquire("first"))
        before, mark = descriptors(), new_mark()
        async with backend.acquire("a") as slot:
            await slot.exec(f"(setsid sleep {mark} &); sleep {mark} & true")
            await slot.exec("true", shell="third")
            await until(lambda: len(sleeping(mark)) == 2)
        assert sleeping(mark) == []
        assert descriptors() <= before


async def test_a_sandbox_killed_from_outside_mid_command_is_a_sandbox_that_died():
    async with create_backend("local", warm=0) as backend, backend.acquire("a") as slot:
        mark = new_mark()
        running = asyncio.create_task(slot.exec(f"echo partial; sleep {mark}"))
        await until(lambda: sleeping(mark))
        await slot.machine.sandbox._process.end()
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxDied):
            await slot.exec("echo never")
        with pytest.raises(SandboxDied):
            await slot.read_file("/etc/passwd")


HARNESS = """
import asyncio, sys
from backends import create_backend

async def main():
    sleep = f"sleep {sys.argv[1]}"
    async with create_backend("local", warm=0) as backend:
        slots = [await backend.acquire(str(n)) for n in range(2)]
        for slot in slots:
            await slot.exec(f"(setsid {sleep} &); setsid nohup {sleep} & true")
        print("ready", flush=True)
        await slots[0].exec(sleep)

asyncio.run(main())
"""


async def test_nothing_outlives_a_killed_harness():
    mark = new_mark()
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, mark, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert await harness.stdout.readline() == b"ready\n"
    await until(lambda: len(sleeping(mark)) == 5)
    harness.send_signal(signal.SIGKILL)
    await harness.wait()
    await until(lambda: not sleeping(mark))


async def test_a_dead_warm_sandbox_is_never_handed_out():
    async with create_backend("local", warm=1) as backend:
        await until(lambda: backend._warm[DEFAULT])
        machine = backend._warm[DEFAULT][0].machine
        await machine.sandbox._process.end()
        await until(lambda: machine.warden.cause)
        async with backend.acquire("a") as slot:
            assert (await slot.exec("echo alive")).stdout == "alive\n"
        assert backend.metrics.found_dead == 1


async def test_a_start_that_is_cancelled_leaves_nothing():
    before = descriptors()
    maker = LocalMaker(LocalLimits())
    for delay_s in (0, 0.005, 0.02):
        making = asyncio.create_task(maker.make(None, USUAL))
        await asyncio.sleep(delay_s)
        making.cancel()
        (ending,) = await asyncio.gather(making, return_exceptions=True)
        if not isinstance(ending, asyncio.CancelledError):
            await ending[0].destroy()
    await maker.close()
    assert descriptors() <= before


async def test_a_sandbox_heeds_the_signals_that_its_harness_ignores():
    usual = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        async with create_backend("local", warm=0) as backend, backend.acquire("a") as slot:
            killed = await slot.exec("bash -c 'kill -USR1 $$'")
            assert killed.exit_code == 128 + signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, usual)


async def test_a_sandbox_that_cannot_start_says_what_its_tools_said():
    with pytest.raises(SandboxUnavailable, match=r"did not start: .*mount tmpfs"):
        await create_backend("local", inodes=-1).start()


async def test_an_image_is_refused():
    async with create_backend("local", warm=0) as backend:
        with pytest.raises(ConfigError, match="use the docker backend"):
            await backend.acquire("a", image="debian")


async def test_what_runs_or_waits_at_a_release_has_no_result_even_where_the_sandbox_is_reused():
    async with create_backend("local", warm=0, reuse=True) as backend:
        slot = await backend.acquire("a")
        machine = slot.machine
        commands = ("touch there; sleep 600", "touch /tmp/planted")
        under_way = [asyncio.create_task(slot.exec(command)) for command in commands]
        await slot.exec("until [ -e there ]; do sleep 0.02; done", shell="control")
        under_way.append(asyncio.create_task(slot.exec("sleep 600", shell="just-opening")))
        await asyncio.sleep(0)
        await backend.release(slot)
        for task in under_way:
            with pytest.raises(SandboxDied, match="released"):
                await task
        async with backend.acquire("b") as slot:
            assert slot.machine is machine
            assert (await slot.exec("ls /tmp")).stdout == ""


async def test_workspaces_start_as_private_copies(tmp_path):
    (tmp_path / "file").write_text("original")
    async with create_backend("local", warm=0, workspace_from=tmp_path) as backend:
        async with backend.acquire("a") as slot:
            assert (await slot.exec("cat file; echo changed >file")).stdout == "original"
        async with backend.acquire("b") as slot:
            assert await slot.read_file("file") == b"original"
    assert (tmp_path / "file").read_text() == "original"


CHANGING = """
import asyncio, pathlib, sys
from backends import create_backend

async def main():
    source = pathlib.Path(sys.argv[1])
    async with create_backend("local", warm=0, workspace_from=source, disk_mb=1) as backend:
        async with backend.acquire("a") as slot:
            print((await slot.exec("cat big | wc -c; echo changed >file; rm d/gone; ls . d")).stdout)
            print((await slot.exec("mv d e && chmod 700 e && touch e/new && ls -l e", shell="other")).stderr)
            print((await slot.exec("df --output=fstype . | tail -1")).stdout)
            print((await slot.exec("head -c 2M /dev/zero >filler")).stderr)
        async with backend.acquire("b") as slot:
            print((await slot.exec("cat file; ls d")).stdout)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "as_user",
    [
        pytest.param(["unshare", "--user", "--map-user=1000", "--map-group=1000"], id="a user"),
        pytest.param([], id="root", marks=pytest.mark.skipif(os.geteuid() != 0, reason="not run by root")),
    ],
)
def test_workspaces_are_copy_on_write(as_user, tmp_path):
    tmp_path = tmp_path / "with, and: \\ in it"
    (tmp_path / "d").mkdir(parents=True)
    (tmp_path / "d" / "gone").touch()
    (tmp_path / "file").write_text("original\n")
    (tmp_path / "big").write_bytes(bytes(3_000_000))  # more than the sandbox may write
    done = subprocess.run(
        [*as_user, sys.executable, "-c", CHANGING, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[:6] == ["3000000", ".:", "big", "d", "file", "d:"]
    assert words[6] == "overlay"
    assert "No space left" in done.stdout
    assert words[-2:] == ["original", "gone"]
    assert (tmp_path / "file").read_text() == "original\n"


async def test_a_sandbox_has_one_user_and_says_so():
    async with create_backend("local", warm=0) as backend, backend.acquire("a") as slot:
        with pytest.raises(ValueError, match="one user alone"):
            await slot.exec("true", user="root")


async def test_output_that_cannot_be_spilled_ends_its_command_with_the_disks_error(tmp_path):
    options = {"warm": 0, "spill_directory": tmp_path / "gone"}
    async with create_backend("local", **options) as backend, backend.acquire("a") as slot:
        with pytest.raises(FileNotFoundError):
            await slot.exec("seq 100000; sleep 600", max_output_bytes=1000)
        assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_this_python_runs_inside():
    async with create_backend("local", warm=0) as backend, backend.acquire("a") as slot:
        result = await slot.exec("python3 -c 'import sys, json, ssl; print(sys.version_info[:2])'")
    assert result.stdout.strip() == str(tuple(sys.version_info[:2]))


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b", "\0"])
async def test_a_shells_name_cannot_be_a_path(name):
    async with create_backend("local", warm=0) as backend, backend.acquire("a") as slot:
        with pytest.raises(ValueError, match="shell: "):
            await slot.exec("true", shell=name)


async def test_a_python_environment_is_seen_read_only_with_its_packages():
    async with create_backend("local", warm=0, python=sys.prefix) as backend, backend.acquire("a") as slot:
        seen = await slot.exec("python3 -c 'import pytest, sys; print(sys.prefix)'")
        assert (seen.stdout.strip(), seen.exit_code) == (sys.prefix, 0), seen.stderr
        assert (await slot.exec(f"touch {sys.prefix}/x")).exit_code != 0


def test_a_folder_that_is_no_python_environment_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=f"python: {tmp_path} holds no bin/python3"):
        create_backend("local", python=str(tmp_path))


def test_pipes_that_cannot_all_be_made_are_closed(monkeypatch):
    before, made, make = descriptors(), [], os.pipe

    def pipe():
        if len(made) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(make())
        return made[-1]

    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(SandboxUnavailable, match="Too many open files"):
        make_pipes(3)
    assert descriptors() <= before
