"""What a command costs: our sandboxes, the floor beneath them, and the peers, measured in one run.

    python -m scripts.bench.sandboxes [--docker-image NAME] [--swerex-python PATH]

Ratios count: all rows share one machine and its load. The floor is a bash over plain pipes, without a
sandbox, exit codes or output channels. SWE-ReX runs in the interpreter named, so that its dependencies stay
out of ours.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from backends import Slot, create_backend
from backends.docker import DockerLimits, container_request
from backends.docker_api import DockerApi, remove_container

TARGETS = {
    "local": {"warm": 0.3, "subshell": 2, "throughput": 4000, "cold": 25},
    "docker": {"warm": 0.6, "subshell": 4, "throughput": 2500, "cold": 250},
}
ACQUIRE_MS, OVERRUN_MS, OUTPUT_MB_S, SLEEPS_S = 2, 150, 60, 1.3

SWEREX = """
import asyncio, statistics, time
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime

async def timed(call, times):
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)

async def main():
    runtime = LocalRuntime()
    print("execute", await timed(lambda: runtime.execute(Command(command="true", shell=True)), 50))
    await runtime.create_session(CreateBashSessionRequest())
    print("session", await timed(lambda: runtime.run_in_session(BashAction(command="true")), 15))
    await runtime.close()

asyncio.run(main())
"""


def report(what: str, value: float, unit: str, target: float | None = None) -> None:
    """Print one row."""
    aim = "" if target is None else f"{'≥' if unit in ('/s', 'MB/s') else '≤'} {target:g}"
    print(f"| {what} | {value:,.2f} {unit} | {aim} |", flush=True)


async def median_ms(call: Callable[[], Awaitable[Any]], times: int) -> float:
    """Return the median time of a call, in milliseconds."""
    spent = list[float]()
    for _ in range(times):
        began = time.perf_counter()
        await call()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1000


async def bench_backend(kind: str, options: dict[str, Any], in_flight: int) -> None:
    """Measure one kind of sandbox against its targets."""
    targets = TARGETS[kind]
    async with create_backend(kind, warm=1, max_slots=in_flight, max_creating=8, **options) as backend:
        slot = await backend.acquire("one")
        await slot.exec("true")
        report(
            f"{kind}: warm command", await median_ms(lambda: slot.exec("true"), 2000), "ms", targets["warm"]
        )
        isolated = await median_ms(lambda: slot.exec("true", isolated=True), 500)
        report(f"{kind}: command in a subshell", isolated, "ms", targets["subshell"])
        await bench_output(kind, slot)
        await bench_timeouts(kind, slot)
        await backend.release(slot)
        slots = await asyncio.gather(*(backend.acquire(str(n), timeout_s=600) for n in range(in_flight)))
        await bench_many(kind, list(slots), targets["throughput"])


async def bench_output(kind: str, slot: Slot) -> None:
    """Let a command print a gigabyte, and look at the memory it takes here."""
    before, began = peak_mb(), time.perf_counter()
    result = await slot.exec("head -c 1000000000 /dev/zero", timeout_s=600)
    seconds = time.perf_counter() - began
    assert result.stdout_bytes == 1_000_000_000, result.stdout_bytes
    report(f"{kind}: output of 1 GB", 1000 / seconds, "MB/s", OUTPUT_MB_S)
    report(f"{kind}: memory grown by it", peak_mb() - before, "MB")


async def bench_timeouts(kind: str, slot: Slot) -> None:
    """Time commands out, with daemons; report how late the answer is, and what survives."""
    late = list[float]()
    for _ in range(10):
        began = time.perf_counter()
        result = await slot.exec("(setsid sleep 98765 &); sleep 98765 & sleep 98765", timeout_s=0.2)
        late.append((time.perf_counter() - began - 0.2) * 1000)
        assert result.timed_out
    report(f"{kind}: timeout overrun, worst of 10", max(late), "ms", OVERRUN_MS)
    left = await slot.exec("grep -al 9876[5] /proc/[0-9]*/cmdline | wc -l", shell="control")
    report(f"{kind}: survivors of them", int(left.stdout), "")


async def bench_leases(kind: str, options: dict[str, Any]) -> None:
    """Measure a warm acquire, making a sandbox from nothing, and ending one."""
    targets, warm, cold, ending = TARGETS[kind], list[float](), list[float](), list[float]()
    for ready, spent in ((1, warm), (0, cold)):
        async with create_backend(kind, warm=ready, **options) as backend:
            await backend.release(await backend.acquire("the first is always ready"))
            for n in range(8):
                await asyncio.sleep(0.7 * ready)  # for the next one to be ready
                began = time.perf_counter()
                slot = await backend.acquire(str(n))
                spent.append((time.perf_counter() - began) * 1000)
                began = time.perf_counter()
                await backend.release(slot)
                ending.append((time.perf_counter() - began) * 1000)
    report(f"{kind}: acquire, warm", statistics.median(warm), "ms", ACQUIRE_MS)
    report(f"{kind}: acquire, cold", statistics.median(cold), "ms", targets["cold"])
    report(f"{kind}: release", statistics.median(ending), "ms")


async def bench_many(kind: str, slots: list[Slot], target: float) -> None:
    """Keep every slot busy at once."""

    async def repeat(slot: Slot, times: int) -> None:
        for _ in range(times):
            await slot.exec("true")

    await asyncio.gather(*(repeat(slot, 5) for slot in slots))
    began, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(repeat(slot, 150) for slot in slots))
    commands, seconds = len(slots) * 150, time.perf_counter() - began
    report(f"{kind}: commands in {len(slots)} slots", commands / seconds, "/s", target)
    report(f"{kind}: harness CPU per command", (time.process_time() - spent) / commands * 1000, "ms")
    began = time.perf_counter()
    await asyncio.gather(*(slot.exec("sleep 1") for slot in slots))
    report(f"{kind}: {len(slots)} x sleep 1", time.perf_counter() - began, "s", SLEEPS_S)


async def bench_floor() -> None:
    """Measure what is beneath every sandbox, and what a new process per command costs."""
    shell = await asyncio.create_subprocess_exec("bash", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    async def ask() -> None:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write(b"true; echo $?\n")
        await shell.stdout.readline()

    async def spawn() -> None:
        await (await asyncio.create_subprocess_shell("true")).wait()

    report("floor: bash over pipes, no sandbox", await median_ms(ask, 2000), "ms")
    shell.kill()
    await shell.wait()
    report("a new shell per command, no sandbox", await median_ms(spawn, 100), "ms")


async def bench_engine(image: str) -> None:
    """Measure what the engine itself takes to make a container, which every cold start has to wait for."""
    api = DockerApi()
    request = container_request(image, DockerLimits(), {})
    spent = list[float]()
    for _ in range(8):
        began = time.perf_counter()
        container = (await api.call("POST", "/containers/create", request))["Id"]
        await api.call("POST", f"/containers/{container}/start")
        spent.append((time.perf_counter() - began) * 1000)
        await remove_container(api, container)
    await api.close()
    report("the engine's own create and start", statistics.median(spent), "ms")


async def bench_docker_exec(image: str) -> None:
    """Measure the command line that most harnesses call."""
    command = ["docker", "run", "--rm", "--detach", "--network", "none", image, "sleep", "600"]
    container = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: ASYNC221

    async def execute() -> None:
        await (await asyncio.create_subprocess_exec("docker", "exec", container, "true")).wait()

    report("docker exec, per command", await median_ms(execute, 20), "ms")
    subprocess.run(["docker", "kill", container], capture_output=True, check=True)  # noqa: ASYNC221


def bench_swerex(python: str) -> None:
    """Measure SWE-ReX without a sandbox, in its own interpreter."""
    done = subprocess.run([python, "-c", SWEREX], capture_output=True, text=True, check=False)
    for name, value in re.findall(r"^(execute|session) ([\d.]+)$", done.stdout, re.MULTILINE):
        report(f"SWE-ReX {name}, no sandbox", float(value), "ms")
    if done.returncode != 0:
        print(f"SWE-ReX failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)


def peak_mb() -> float:
    """Return the most memory this process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure sandboxes.")
    parser.add_argument("--docker-image", help="measure Docker, with this image")
    parser.add_argument("--swerex-python", help="interpreter that has swe-rex")
    parser.add_argument("--in-flight", type=int, default=32)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| what | measured | target |\n|---|---|---|")
    asyncio.run(bench_floor())
    kinds: dict[str, dict[str, Any]] = {"local": {}}
    if arguments.docker_image:
        kinds["docker"] = {"image": arguments.docker_image}
    for kind, options in kinds.items():
        asyncio.run(bench_leases(kind, options))
        asyncio.run(bench_backend(kind, options, arguments.in_flight))
    if arguments.docker_image:
        asyncio.run(bench_engine(arguments.docker_image))
        asyncio.run(bench_docker_exec(arguments.docker_image))
    if arguments.swerex_python:
        bench_swerex(arguments.swerex_python)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
