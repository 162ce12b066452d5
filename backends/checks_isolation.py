"""Conformance: what a sandbox can't see, can't reach, can't gain and can't use up."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import Awaitable
from pathlib import Path

from backends.base import Slot
from backends.check import Factory, expect, on_backend, on_slot, output_of, require


@on_slot
async def the_agent_has_no_privileges(slot: Slot) -> None:
    status = await output_of(slot, "cat /proc/self/status; id -u")
    require(
        "CapEff:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status, "it has capabilities"
    )
    require("NoNewPrivs:\t1" in status, "it can gain privileges by executing a file")
    require(status.splitlines()[-1] != "0", "it is root")


@on_slot
async def the_agent_cannot_make_namespaces_or_mounts(slot: Slot) -> None:
    for command in (
        "mount -t tmpfs x /tmp",
        "unshare -Ur true",
        "unshare -m true",
        "umount /proc",
        "mount -o remount,rw /",
        "chroot / true",
        "mknod /tmp/disk b 8 0",
        "hostname other",
        "dmesg -n 1",
    ):
        require((await slot.exec(command)).exit_code != 0, f"{command!r} succeeded")


@on_slot
async def there_is_no_network(slot: Slot) -> None:
    interfaces = await output_of(
        slot, "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1"
    )
    expect(set(interfaces.split()) - {"lo"}, set())
    for address in ("169.254.169.254/80", "1.1.1.1/53", "172.17.0.1/22"):
        result = await slot.exec(f"exec 5<>/dev/tcp/{address}", timeout_s=3, isolated=True)
        require(result.exit_code != 0 and not result.timed_out, f"{address} can be reached: {result}")


@on_slot
async def the_system_cannot_be_changed(slot: Slot) -> None:
    for path in (
        "/usr/x",
        "/etc/x",
        "/x",
        "/bin/x",
        "/lib/x",
        "/proc/sys/kernel/hostname",
        "/dev/x",
        "/run/x",
    ):
        require((await slot.exec(f"echo x >{path}")).exit_code != 0, f"{path} was written")


@on_slot
async def nothing_of_the_host_is_visible(slot: Slot) -> None:
    with tempfile.TemporaryDirectory() as host:
        (Path(host) / "file").write_text("the host's")
        for path in (host, f"/proc/*/root{host}"):
            require((await slot.exec(f"ls {path}")).exit_code != 0, f"a host directory can be seen as {path}")
    for path in ("/var/run/docker.sock", "/run/docker.sock", "/root/.ssh"):
        require((await slot.exec(f"ls {path}")).exit_code != 0, f"{path} can be seen")
    require((await slot.exec("cat /etc/shadow")).exit_code != 0, "/etc/shadow can be read")
    require(
        await output_of(slot, "hostname 2>/dev/null || cat /proc/sys/kernel/hostname") != os.uname().nodename,
        "host name",
    )


@on_backend
async def no_secret_of_the_harness_gets_in(factory: Factory) -> None:
    secret = secrets.token_hex(16)
    os.environ["LACHESIS_TEST_SECRET"] = secret
    try:
        async with factory(warm=0) as backend, backend.acquire("a") as slot:
            found = await slot.exec(
                f"env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | grep -c {secret[:-1]}[{secret[-1]}]"
            )
    finally:
        del os.environ["LACHESIS_TEST_SECRET"]
    require(secret not in found.stdout and found.stdout.splitlines()[-1] == "0", "the secret can be seen")


@on_backend
async def slots_see_nothing_of_each_other(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        a, b = await asyncio.gather(backend.acquire("a"), backend.acquire("b"))
        await a.exec("echo secret | tee /tmp/f /dev/shm/f ~/f f; sleep 641 & echo $! >pid; exec 9<>/dev/null")
        found = "cat /tmp/f /dev/shm/f ~/f f 2>/dev/null; grep -al 'sleep.64[1]' /proc/[0-9]*/cmdline"
        expect((await b.exec(found)).stdout, "")
        pid = (await a.read_file("pid")).decode().strip()
        others = await b.exec(f"kill -0 {pid} 2>/dev/null && tr '\\0' ' ' </proc/{pid}/cmdline")
        require("sleep 641" not in others.stdout, "a process of another slot can be signalled")
        await b.exec("kill -KILL -1")
        expect(await output_of(a, "jobs -r | wc -l"), "1")


TRACE = """
import ctypes, os
libc, attach, detach = ctypes.CDLL(None), 16, 17
for pid in range(2, 65536):
    if not os.path.exists(f"/proc/{pid}") and libc.ptrace(attach, pid, 0, 0) == 0:
        libc.ptrace(detach, pid, 0, 0)
        print("traced", pid)
"""


@on_backend
async def no_process_of_another_slot_can_be_traced(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        a, b = await asyncio.gather(backend.acquire("a"), backend.acquire("b"))
        await a.exec("sleep 642 & true")
        await b.write_file("trace.py", TRACE.encode())
        signal_all = (
            "for ((p = 2; p < 65536; p++)); do kill -0 $p && [ ! -e /proc/$p ] && echo reached $p; done"
        )
        reached = await b.exec(
            f"command -v python3 >/dev/null && python3 trace.py; {{ {signal_all}; }} 2>/dev/null"
        )
        expect((reached.stdout, reached.stderr), ("", ""))
        for name in ("mem", "root/", "environ", "fd/"):
            seen = f"grep -qa 'sleep.64[2]' $p/cmdline && ls $p/{name}"
            expect((await b.exec(f"for p in /proc/[0-9]*; do {seen}; done 2>/dev/null")).stdout, "")
        expect(await output_of(a, "jobs -r | wc -l"), "1")


@on_slot
async def memory_of_one_process_is_bounded(slot: Slot) -> None:
    result = await slot.exec("dd if=/dev/zero of=/dev/null bs=6G count=1", timeout_s=60, isolated=True)
    require(result.exit_code not in (0, None), f"6 GB of memory were given: {result}")
    expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def memory_of_all_processes_together_is_bounded(slot: Slot) -> None:
    hog = "{ head -c 700M /dev/zero; sleep 1; } | tail >/dev/null"
    each = "for hog in $hogs; do wait $hog || exit 1; done"  # wait -n overlooks those that have ended already
    script = f'for i in {{1..8}}; do {hog} & hogs+=" $!"; done; {each}'
    result = await slot.exec(script, timeout_s=100, isolated=True)
    require(result.exit_code not in (0, None), "5.6 GB of memory were given to small processes")


@on_slot
async def the_disk_can_be_filled_and_emptied(slot: Slot) -> None:
    result = await slot.exec("head -c 20G /dev/zero >filler", timeout_s=100)
    require(result.exit_code != 0 and "No space left" in result.stderr, f"20 GB were written: {result}")
    expect(await output_of(slot, "rm filler; echo fine >file; cat file"), "fine")


@on_slot
async def the_number_of_files_is_bounded(slot: Slot) -> None:
    free = int(await output_of(slot, "df --output=iavail . | tail -1"))
    require(0 < free <= 1_000_000, f"{free} files can be made")


@on_slot
async def the_number_of_processes_is_bounded(slot: Slot) -> None:
    result = await slot.exec(
        "for i in {1..3000}; do sleep 600 & done", timeout_s=4, isolated=True, max_output_bytes=999
    )
    require(
        result.timed_out or result.exit_code != 0 or "Resource" in result.stderr, "3000 processes were given"
    )
    await slot.exec("kill -KILL -1")
    expect(await output_of(slot, "echo $(echo fine)"), "fine")


@on_slot
async def endless_output_is_ended_with_bounded_memory(slot: Slot) -> None:
    result = await slot.exec("yes", timeout_s=1, max_output_bytes=1000)
    expect((result.timed_out, result.truncated), (True, True))
    require(
        len(result.stdout) < 1200 and result.stdout_bytes > 1_000_000, f"kept {len(result.stdout)} characters"
    )


def _without_a_core_s() -> float:
    """Return how long this thread was ready to run and others had the cores, where Linux tells, else 0."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


async def _lags(work: Awaitable[object]) -> list[float]:
    """Return by how much turns of the loop came late while ``work`` ran, not for lack of a core; sorted."""
    loop, lags = asyncio.get_running_loop(), list[float]()

    async def watch() -> None:
        while True:
            before = loop.time() - _without_a_core_s()
            await asyncio.sleep(0.01)
            lags.append(loop.time() - _without_a_core_s() - before - 0.01)

    watcher = asyncio.create_task(watch())
    await work
    watcher.cancel()
    return sorted(lags)


@on_slot
async def the_event_loop_is_never_blocked(slot: Slot) -> None:
    async def work() -> None:
        await slot.exec("head -c 100M /dev/zero")
        await slot.write_file("file", bytes(10_000_000))
        await slot.read_file("file")
        await slot.exec("yes", timeout_s=0.3)
        await slot.exec("sleep 0.3")

    idle = await _lags(asyncio.sleep(0.5))
    busy = await _lags(work())
    for share in (0.5, 0.9):
        limit_s = 10 * max(idle[int(len(idle) * share)], 0.005)
        lag_s = busy[int(len(busy) * share)]
        require(
            lag_s < limit_s,
            f"{share:.0%} of all turns of the loop: {lag_s:.4f} s late, may be {limit_s:.4f} s",
        )
