import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from backends import create_backend
from backends import launcher as launcher_module
from backends.bubblewrap import Job
from backends.checks_commands import C_LIBRARYS_OWN_SIGNALS
from backends.launcher import Launcher
from backends.local import LocalLimits, LocalMaker
from backends.resources import USUAL
from tests.backends.host_processes import new_mark, sleeping, until
from trajectories.errors import SandboxDied, SandboxUnavailable

ROOT = Path(__file__).parents[2]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="not run by root")


@pytest.fixture
def launcher():
    launcher = Launcher()
    yield launcher
    launcher.close()


def launchers(harness):
    """Return the process ids of a harness's launchers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[-3:-1] == [str(ROOT / "backends/launch.py").encode(), str(harness).encode()]:
                found.append(int(folder.name))
    return found


async def run(launcher, script, **settings):
    """Run a script in the place of bubblewrap; return what it says on stdout and stderr."""
    job = Job(storage="size=1m", owner=None, command=["bash", "-c", script], **settings)
    output, end = os.pipe()
    process = await launcher.start(job, output, end, end)
    os.close(end)
    said = b"".join(await asyncio.to_thread(lambda: list(iter(lambda: os.read(output, 4096), b""))))
    os.close(output)
    await process.end()
    return said.decode()


async def test_a_command_finds_what_its_job_names_open_and_nothing_else(launcher, tmp_path):
    (tmp_path / "five").touch()
    said = await run(
        launcher,
        "cat <&4 <&6; echo written >&5; for fd in /dev/fd/*; do [[ -e $fd ]] && echo ${fd##*/}; done",
        texts={4: "four\n", 6: "six\n"},
        opened={5: str(tmp_path / "five")},
    )
    assert said.split() == ["six", "0", "1", "2", "4", "5", "6"]
    assert (tmp_path / "five").read_text() == "written\n"
    assert (
        await run(launcher, "for fd in /dev/fd/*; do [[ ! -e $fd ]] || echo ${fd##*/}; done")
    ).split() == [*"012"]


async def test_a_command_is_the_first_of_its_processes(launcher):
    said = await run(launcher, "echo $$ /proc/[0-9]*; read -r score </proc/self/oom_score_adj; echo $score")
    assert said.split() == ["1", "/proc/1", "1000"]


async def test_a_command_that_cannot_run_says_so_where_it_would_have_spoken(launcher):
    assert "mount /nonexistent /sys/host0" in await run(launcher, "true", passed=("/nonexistent",))
    assert "No such file" in await run(launcher, "true", opened={5: "/nonexistent/file"})
    assert await run(launcher, "echo fine") == "fine\n"


async def test_a_launcher_keeps_nothing_open_of_what_it_started(launcher):
    await run(launcher, "true")
    before = descriptors(inner(launcher))
    for _ in range(5):
        await run(launcher, "true")
        assert "kept" in await run(launcher, "true", passed=("/kept",))
    assert descriptors(inner(launcher)) == before


def inner(launcher):
    """Return the process of a launcher that starts sandboxes."""
    (pid,) = children(launcher._process.pid)
    return pid


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descriptors(pid):
    return sorted(entry.name for entry in Path(f"/proc/{pid}/fd").iterdir())


async def test_a_launcher_without_descriptors_says_so_and_goes_on(launcher):
    await run(launcher, "true")
    usual = resource.prlimit(inner(launcher), resource.RLIMIT_NOFILE)
    resource.prlimit(inner(launcher), resource.RLIMIT_NOFILE, (6, usual[1]))
    for _ in range(3):
        with pytest.raises(SandboxUnavailable, match="too few descriptors"):
            await run(launcher, "true")
    resource.prlimit(inner(launcher), resource.RLIMIT_NOFILE, usual)
    assert await run(launcher, "echo fine") == "fine\n"


async def test_no_program_inherits_the_descriptor_of_a_sandbox(launcher):
    nothing = os.open(os.devnull, os.O_RDWR)
    process = await launcher.start(Job("", None, ["sleep", "600"]), nothing, nothing, nothing)
    os.close(nothing)
    assert not os.get_inheritable(process._fd)
    await process.end()


async def test_a_cancelled_start_leaves_no_process(launcher):
    mark = new_mark()
    await run(launcher, "true")
    os.kill(inner(launcher), signal.SIGSTOP)
    nothing = os.open(os.devnull, os.O_RDWR)
    starting = asyncio.create_task(launcher.start(Job("", None, ["sleep", mark]), nothing, nothing, nothing))
    await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.sleep(0.05)
    os.kill(inner(launcher), signal.SIGCONT)
    with pytest.raises(asyncio.CancelledError):
        await starting
    os.close(nothing)
    assert await run(launcher, "sleep 0.1; echo fine") == "fine\n"
    assert sleeping(mark) == []


async def maker_with_a_silent_launcher():
    maker = LocalMaker(LocalLimits())
    launcher = maker._running_launcher()
    await run(launcher, "true")
    os.kill(inner(launcher), signal.SIGSTOP)
    return maker, launcher


async def test_an_answer_that_nobody_took_is_never_anothers():
    maker, first = await maker_with_a_silent_launcher()
    starting = asyncio.create_task(maker.make(None, USUAL))
    await asyncio.sleep(0.05)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait({starting})
    assert not first.alive
    sandbox, _ = await maker.make(None, USUAL)
    await sandbox.destroy()
    await maker.close()


async def test_nothing_is_started_once_the_backend_was_stopped():
    maker = LocalMaker(LocalLimits())
    await maker.check()
    await maker.close()
    with pytest.raises(SandboxUnavailable, match="stopped"):
        await maker.make(None, USUAL)


async def test_a_loop_that_was_busy_for_long_finds_its_answer(launcher, monkeypatch):
    monkeypatch.setattr(launcher_module, "ANSWER_TIMEOUT_S", 0.2)
    asyncio.get_running_loop().call_later(0.001, time.sleep, 0.5)
    assert await run(launcher, "echo fine") == "fine\n"


async def test_a_silent_launcher_is_replaced(monkeypatch):
    monkeypatch.setattr(launcher_module, "ANSWER_TIMEOUT_S", 0.3)
    maker, _ = await maker_with_a_silent_launcher()
    with pytest.raises(SandboxUnavailable, match=r"within 0\.3 s"):
        await maker.make(None, USUAL)
    sandbox, _ = await maker.make(None, USUAL)
    await sandbox.destroy()
    await maker.close()


async def test_a_launcher_that_dies_amid_a_start_takes_no_later_one_along():
    maker, first = await maker_with_a_silent_launcher()
    waiting = asyncio.create_task(maker.make(None, USUAL))
    await asyncio.sleep(0.1)
    first._process.kill()
    first._process.wait()  # so that the next start knows of it before the one that waits
    async with asyncio.timeout(20):
        sandbox, _ = await maker.make(None, USUAL)
        with pytest.raises(SandboxUnavailable):
            await waiting
    await sandbox.destroy()
    await maker.close()


async def test_the_reason_of_a_start_that_fails_at_once_is_never_lost(launcher):
    reasons = [await run(launcher, "true", passed=("/nonexistent",)) for _ in range(50)]
    assert all("/nonexistent" in reason for reason in reasons)
    assert len(children(inner(launcher))) < 5  # zombies, of the last ones


async def test_starts_at_the_same_time_do_not_mix_their_streams(launcher):
    said = await asyncio.gather(*(run(launcher, f"sleep 0.1; echo {n}") for n in range(20)))
    assert said == [f"{n}\n" for n in range(20)]


async def test_an_end_waits_for_all_that_the_first_process_started(launcher):
    mark = new_mark()
    job = Job(storage="", owner=None, command=["bash", "-c", f"setsid sleep {mark} & setsid sleep {mark}"])
    nothing = os.open(os.devnull, os.O_RDWR)
    process = await launcher.start(job, nothing, nothing, nothing)
    os.close(nothing)
    await until(lambda: len(sleeping(mark)) == 2)
    await asyncio.gather(process.end(), process.end())
    assert sleeping(mark) == []


async def test_a_killed_launcher_takes_its_sandboxes_along_and_the_next_start_has_another():
    async with create_backend("local", warm=0) as backend:
        async with backend.acquire("a") as slot:
            mark = new_mark()
            running = asyncio.create_task(slot.exec(f"sleep {mark}"))
            await until(lambda: sleeping(mark))
            (sleep,) = sleeping(mark)
            for pid in [pid for pid in launchers(os.getpid()) if is_above(pid, sleep)]:
                with suppress(ProcessLookupError):  # one of the two takes the other along
                    os.kill(pid, signal.SIGKILL)
            with pytest.raises(SandboxDied):
                await running
            await until(lambda: not sleeping(mark))
        async with backend.acquire("b") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"


def is_above(ancestor, pid):
    """Whether a process is the parent of another, or of its parent, and so on."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid == ancestor:
            return True
    return False


HARNESS = """
import time
from backends.launcher import Launcher
launcher = Launcher()
print("ready", flush=True)
time.sleep(600)
"""


async def test_a_launcher_ends_with_its_harness():
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert await harness.stdout.readline() == b"ready\n"
    await until(lambda: len(launchers(harness.pid)) == 2)
    harness.kill()
    await harness.wait()
    await until(lambda: not launchers(harness.pid))


ODD = """
import asyncio, os, signal
from backends import create_backend

os.umask(0o077)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

async def main():
    async with create_backend("local", warm=0) as backend, backend.acquire("a") as slot:
        print((await slot.exec("umask; stat -c %a . ~; grep Sig[BI] /proc/self/status")).stdout)

asyncio.run(main())
"""


def test_a_sandbox_inherits_no_mask_of_its_harness():
    done = subprocess.run([sys.executable, "-c", ODD], cwd=ROOT, capture_output=True, text=True, check=True)
    umask, workspace, home, _, blocked, _, ignored = done.stdout.split()
    assert (umask, workspace, home) == ("0022", "755", "755")
    assert (int(blocked, 16), int(ignored, 16) & ~C_LIBRARYS_OWN_SIGNALS) == (0, 0)


MOUNTING = """
import asyncio, os, subprocess, sys
from backends import create_backend

async def main():
    folder = sys.argv[1]
    async with create_backend("local", warm=0, python=sys.argv[2]) as backend, backend.acquire("a") as slot:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "tmpfs", folder], check=True)
        open(folder + "/file", "w").write("the host's")
        print((await slot.exec(f"cat {folder}/file || touch {folder}/mine || echo neither")).stdout)
        print(os.listdir(folder))

asyncio.run(main())
"""


@AS_ROOT
def test_what_the_host_mounts_later_appears_in_no_sandbox(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("/usr/bin/python3")
    (tmp_path / "later").mkdir()
    shared = ["unshare", "--mount", "--propagation", "shared"]
    done = subprocess.run(
        [*shared, sys.executable, "-c", MOUNTING, str(tmp_path / "later"), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["neither", "['file']"]


POWERLESS = """
import asyncio
from backends import create_backend
asyncio.run(create_backend("local", warm=1).start())
"""


@AS_ROOT
def test_what_the_kernel_refuses_is_told():
    powerless = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run(
        [*powerless, sys.executable, "-c", POWERLESS], cwd=ROOT, capture_output=True, text=True
    )
    assert (
        "SandboxUnavailable: the sandbox did not start: [Errno 1] unshare: Operation not permitted"
        in done.stderr
    )


@AS_ROOT
async def test_mounts_made_later_are_seen_and_not_held(launcher, tmp_path):
    await run(launcher, "true")
    await mounting("mount", "-t", "tmpfs", "tmpfs", tmp_path)
    (tmp_path / "file").write_text("seen")
    assert await run(launcher, f"cat {tmp_path}/file") == "seen"
    await mounting("umount", tmp_path)
    assert not [pid for pid in launchers(os.getpid()) if str(tmp_path) in mounts_of(pid)]


def mounts_of(pid):
    with suppress(FileNotFoundError):  # another test's launcher, that has ended
        return Path(f"/proc/{pid}/mountinfo").read_text()
    return ""


async def mounting(*command):
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
