import asyncio
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from backends import create_backend
from backends.bubblewrap import SANDBOX_UID
from backends.resources import USUAL
from backends.ssh_host import SshHost, SshLimits
from tests.backends.host_processes import new_mark, sleeping, until
from tests.backends.network import network_to
from tests.backends.sshd import USER, make_key, open_folder, sshd_with
from trajectories.errors import ConfigError, SandboxDied, SandboxUnavailable

ROOT = Path(__file__).parents[2]


def ssh(server, **options):
    return create_backend("ssh", **{"warm": 0, "disk_mb": 64, **server.options, **options})


def through(network, server, **options):
    """Reach the server by a network that can be cut."""
    return ssh(server, host=f"{USER}@127.0.0.1:{network.port}", check_host_key=False, **options)


async def busy(slot):
    """Start a command that does not end, wait until it runs, and return it with its mark."""
    mark = new_mark()
    running = asyncio.create_task(slot.exec(f"echo partial; sleep {mark}"))
    await until(lambda: sleeping(mark))
    return running, mark


async def test_a_connection_that_is_cut_is_a_sandbox_that_died_and_leaves_nothing(sshd):
    async with network_to(sshd.port) as network, through(network, sshd) as backend:
        async with backend.acquire("a") as slot:
            running, mark = await busy(slot)
            network.cut()
            with pytest.raises(SandboxDied, match="connection to the host was lost"):
                await running
            with pytest.raises(SandboxDied):
                await slot.exec("echo never", shell="other")
            await until(lambda: not sleeping(mark))
        async with backend.acquire("b") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_a_network_that_goes_silent_ends_the_sandbox_on_both_sides(sshd):
    async with (
        network_to(sshd.port) as network,
        through(network, sshd, lease_s=5) as backend,
        backend.acquire("a") as slot,
    ):
        running, mark = await busy(slot)
        network.go_silent()
        with pytest.raises(SandboxDied):
            await running
        await until(lambda: not sleeping(mark))


HARNESS = """
import asyncio, json, sys
from backends import create_backend

async def main():
    sleep = f"sleep {sys.argv[2]}"
    async with create_backend("ssh", warm=0, **json.loads(sys.argv[1])) as backend:
        slots = [await backend.acquire(str(n)) for n in range(2)]
        for slot in slots:
            await slot.exec(f"(setsid {sleep} &); setsid nohup {sleep} & true")
        print("ready", flush=True)
        await slots[0].exec(sleep)

asyncio.run(main())
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
async def test_nothing_on_the_host_outlives_a_harness_that_is_killed_or_hangs(sshd, ending):
    options, mark = json.dumps({**sshd.options, "lease_s": 5}), new_mark()
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, options, mark, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert await harness.stdout.readline() == b"ready\n"
    await until(lambda: len(sleeping(mark)) == 5)
    harness.send_signal(ending)
    await until(lambda: not sleeping(mark) and not sshd.connections())
    if ending == signal.SIGSTOP:
        harness.kill()
    await harness.wait()


def below(processes):
    """Return how many processes there are below some."""
    todo, found = [*processes], 0
    while todo:
        pid = todo.pop()
        with suppress(OSError):
            todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            found += 1
    return found


async def test_a_release_leaves_no_process_mount_or_file_on_the_host(sshd):
    def mounts():
        """Return those that are no containers', which come and go."""
        lines = Path("/proc/mounts").read_text().splitlines()
        return {line for line in lines if "docker" not in line and "containerd" not in line}

    async with ssh(sshd) as backend:
        await backend.release(await backend.acquire("first"))
        await until(lambda: below(sshd.connections()) == 3)  # server, unprivileged half, guard
        before, mark = mounts(), new_mark()
        async with backend.acquire("a") as slot:
            await slot.exec(f"(setsid sleep {mark} &); sleep {mark} & echo x >/tmp/lachesis-{mark}")
            await slot.exec("true", shell="third")
            await until(lambda: len(sleeping(mark)) == 2)
        assert sleeping(mark) == []
        await until(lambda: below(sshd.connections()) == 3)
        assert mounts() <= before
        assert f"lachesis-{mark}" not in os.listdir("/tmp")


async def test_many_slots_share_one_connection_where_the_server_allows_it():
    with sshd_with("MaxSessions 100") as server:
        async with ssh(server, max_sessions=100) as backend:
            slots = await asyncio.gather(*(backend.acquire(str(n)) for n in range(8)))
            assert len(server.connections()) == 1
            results = await asyncio.gather(*(slot.exec("echo fine") for slot in slots))
            assert [result.stdout for result in results] == ["fine\n"] * 8


async def test_a_server_that_allows_fewer_sessions_than_expected_gets_more_connections():
    with sshd_with("MaxSessions 3") as server:
        async with ssh(server) as backend:
            slots = await asyncio.gather(*(backend.acquire(str(n)) for n in range(3)))
            results = await asyncio.gather(*(slot.exec("echo fine", shell="third") for slot in slots))
            assert [result.stdout for result in results] == ["fine\n"] * 3
            assert len(server.connections()) > 3


async def test_a_host_whose_key_is_not_known_is_refused(sshd, tmp_path):
    (tmp_path / "known_hosts").write_text("")
    with pytest.raises(SandboxUnavailable, match=r"host key of .* is not known: put it into known_hosts"):
        await ssh(sshd, known_hosts=str(tmp_path / "known_hosts")).start()


async def test_a_host_that_does_not_know_us_is_named(sshd, tmp_path):
    make_key(tmp_path / "key")
    with pytest.raises(SandboxUnavailable, match="lets nobody in"):
        await ssh(sshd, client_keys=(str(tmp_path / "key"),)).start()


async def test_a_host_that_is_not_there_is_named_and_others_take_its_place(sshd):
    with pytest.raises(SandboxUnavailable, match=r"127\.0\.0\.1:1 can't be reached"):
        await ssh(sshd, host="127.0.0.1:1").start()
    hosts = f"127.0.0.1:1,{sshd.options['host']}"
    async with ssh(sshd, host=hosts) as backend, backend.acquire("a") as slot:
        assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_a_host_that_does_not_answer_is_asked_once_and_then_left_alone_for_a_while(sshd):
    async with network_to(sshd.port) as network:
        network.go_silent()
        silent = f"{USER}@127.0.0.1:{network.port}"
        options = {"host": f"{silent},{sshd.options['host']}", "check_host_key": False}
        async with ssh(sshd, **options, connect_timeout_s=2) as backend:
            slots = await asyncio.gather(*(backend.acquire(str(n)) for n in range(4)))
            results = await asyncio.gather(*(slot.exec("echo fine") for slot in slots))
        assert [result.stdout for result in results] == ["fine\n"] * 4
        assert network.connections == 1


async def test_whoever_waits_for_a_connection_that_fails_fails_with_it(sshd):
    async with network_to(sshd.port) as network:
        network.go_silent()
        limits = SshLimits(host=f"{USER}@127.0.0.1:{network.port}", connect_timeout_s=1, check_host_key=False)
        host = SshHost(limits.host, limits)
        endings = await asyncio.gather(*(host.launch(USUAL) for _ in range(4)), return_exceptions=True)
        assert [type(ending) for ending in endings] == [SandboxUnavailable] * 4
        assert network.connections == 1


async def test_what_the_hosts_start_up_files_print_is_no_output():
    with (
        open_folder() as folder,
        sshd_with(f"SetEnv BASH_ENV={folder}/noise LC_ALL=xx") as server,
    ):
        (folder / "noise").write_text("echo WELCOME; echo BEWARE >&2\n")
        async with ssh(server) as backend, backend.acquire("a") as slot:
            result = await slot.exec("true")
            assert (result.stdout, result.stderr) == ("", "")
            await slot.write_file("file", b"content")
            assert await slot.read_file("file") == b"content"


async def test_a_host_without_bubblewrap_says_what_to_install():
    with open_folder() as folder, sshd_with(f"SetEnv PATH={folder}") as server:
        for tool in ("bash", "env", "readlink", "unshare", "setpriv"):
            (folder / tool).symlink_to(shutil.which(tool))
        with pytest.raises(SandboxUnavailable, match="has no 'bwrap': install bubblewrap there"):
            await ssh(server).start()


@pytest.mark.parametrize(("user", "uid"), [("root", SANDBOX_UID), (USER, None)])
async def test_sandboxes_have_no_privileges_whoever_logs_in(sshd, user, uid):
    async with ssh(sshd, host=f"{user}@127.0.0.1:{sshd.port}") as backend, backend.acquire("a") as slot:
        mark = new_mark()
        assert (await slot.exec(f"id -u; ls /home; sleep {mark} &")).stdout == "1000\nagent\n"
        status = (await slot.exec("cat /proc/self/status")).stdout
        assert "CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        await until(lambda: sleeping(mark))
        (pid,) = sleeping(mark)
        assert os.stat(f"/proc/{pid}").st_uid == (uid or pwd.getpwnam(USER).pw_uid)


async def test_an_image_is_refused(sshd):
    async with ssh(sshd) as backend:
        with pytest.raises(ConfigError, match="use the docker"):
            await backend.acquire("a", image="debian")


async def test_a_link_in_a_pipes_place_leads_to_nothing_of_the_host(sshd):
    with open_folder() as folder:
        (folder / "secret").write_text("of the host")
        (folder / "secret").chmod(0o666)
        plant = f"for s in in out err; do rm -f $1.$s; ln -s {folder}/secret $1.$s; done 2>/dev/null"
        async with ssh(sshd) as backend, backend.acquire("a") as slot:
            await slot.exec(f"cd /run/lachesis; (set -- later; while :; do {plant}; done) & true")
            with suppress(SandboxDied):
                result = await slot.exec("cat", shell="later")
                assert "of the host" not in result.stdout
        assert (folder / "secret").read_text() == "of the host"
