"""Soak: leases with timeouts, cancellations and ``kill -9`` of the harness, then a look for leftovers.

    python -m scripts.soak_sandboxes local --cycles 1000
    python -m scripts.soak_sandboxes docker image=lachesis-test --cycles 1000

A supervisor starts worker processes that lease slots, and kills them at random; a cycle counts when its
worker said so before dying. Every command leaves processes behind that try to outlive it. At the end nothing
may be left: no process, container, mount, file descriptor or file. For remote sandboxes this says something
only where their far side is this host, too.
"""

import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backends import ToolBackend, available_backends, create_backend
from backends.docker_api import DockerApi
from backends.reaper import orphans, reap
from backends.registry import parse_options

MARKS = 30_000
"""A soak is known on the host by a number: how long its processes sleep, and how many it may have."""

SETTLED_S = 5.0
SETTLE_TIMEOUT_S = 60.0


@dataclass
class Report:
    """What the soak did and what it left."""

    backend: str
    command: str
    cycles: int = 0
    timeouts: int = 0
    cancellations: int = 0
    harness_kills: int = 0
    reaped: int = 0
    """Containers of killed harnesses that did not vanish by themselves."""
    workers: list[int] = field(default_factory=list[int])
    """Process ids of the harnesses."""
    seconds: float = 0.0
    left: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


async def cycle(backend: ToolBackend, chance: random.Random, mark: int) -> str:
    """Lease a slot, do one thing in it, give it back; return what was done."""
    sleep = f"sleep {mark}"
    async with backend.acquire(f"task-{chance.random()}") as slot:
        await slot.exec(f"(setsid {sleep} &); {sleep} & echo x >file")
        kind = chance.choice(["finish", "finish", "finish", "timeout", "cancel"])
        if kind == "timeout":
            result = await slot.exec(f"setsid {sleep} & {sleep}", timeout_s=0.05)
            assert result.timed_out, result
        elif kind == "cancel":
            running = asyncio.create_task(slot.exec(sleep))
            await asyncio.sleep(0.02)
            running.cancel()
            await asyncio.wait({running})
        result = await slot.exec("cat file")
        assert result.stdout == "x\n", result
    return kind


async def work(arguments: argparse.Namespace) -> None:
    """Run cycles, print what each one did, and at the end the descriptors left in this process."""
    chance = random.Random(arguments.seed)
    options = parse_options(arguments.options)
    options |= {"max_slots": arguments.in_flight, "processes": arguments.mark % MARKS}
    async with create_backend(arguments.kind, **options):
        pass  # an SDK may have a loop of its own, which it keeps
    before = _descriptors()
    async with create_backend(arguments.kind, **options) as backend:
        remaining = iter(range(arguments.cycles))

        async def lane() -> None:
            for _ in remaining:
                print(await cycle(backend, chance, arguments.mark), flush=True)

        await asyncio.gather(*(lane() for _ in range(arguments.in_flight)))
    print(json.dumps({"descriptors": sorted(_descriptors() - before)}), flush=True)


async def supervise(arguments: argparse.Namespace) -> Report:
    """Run workers until enough cycles are done, then wait for everything of theirs to vanish."""
    command = shlex.join(["python", "-m", "scripts.soak_sandboxes", *sys.argv[1:]])
    report, chance, began = Report(arguments.kind, command), random.Random(arguments.seed), time.monotonic()
    before = host_state(Path(arguments.temporary), arguments.mark, [])
    while report.cycles < arguments.cycles:
        left = arguments.cycles - report.cycles
        last = left <= arguments.cycles // (arguments.kills + 1) or report.harness_kills >= arguments.kills
        quota = left if last else max(1, int(left * chance.uniform(0.1, 0.5)))
        await run_worker(arguments, report, quota, kill=not last)
    if arguments.kind == "docker":
        report.reaped = await reap_all()
    report.left |= await leftovers(arguments, before, report)
    report.seconds = round(time.monotonic() - began, 1)
    return report


async def run_worker(arguments: argparse.Namespace, report: Report, quota: int, *, kill: bool) -> None:
    """Run one harness process until it is done, or kill it once it has done ``quota`` cycles."""
    command = [arguments.kind, *arguments.options, "--worker", "--cycles", str(10**9 if kill else quota)]
    command += [
        "--mark",
        str(arguments.mark),
        "--in-flight",
        str(arguments.in_flight),
        "--seed",
        str(arguments.seed + report.cycles),
    ]
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.soak_sandboxes", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": arguments.temporary},
    )
    assert worker.stdout is not None
    report.workers.append(worker.pid)
    done = 0
    async for line in worker.stdout:
        said = line.decode().strip()
        if said.startswith("{"):
            report.left["descriptors"] = json.loads(said)["descriptors"]
            continue
        done += 1
        report.timeouts += said == "timeout"
        report.cancellations += said == "cancel"
        if kill and done == quota:
            worker.send_signal(signal.SIGKILL)
    report.cycles += done
    report.harness_kills += kill
    if await worker.wait() not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the worker ended with {worker.returncode}")


def host_state(temporary: Path, mark: int, workers: list[int]) -> dict[str, set[str]]:
    """Look at what sandboxes of these harnesses could leave on this host."""
    return {
        "processes": {
            f"{pid} {command}"
            for pid, command in _processes()
            if _is_marked(command.split(), mark) or _launches_for(command.split(), workers)
        },
        "mounts": {
            line
            for line in Path("/proc/mounts").read_text().splitlines()
            if "docker" not in line and "containerd" not in line  # they come and go
        },
        "files": {str(path) for path in temporary.rglob("*")},
        "control groups": {
            str(path) for pid in workers for path in Path("/sys/fs/cgroup").glob(f"**/lachesis-{pid}-*")
        },
    }


async def leftovers(
    arguments: argparse.Namespace, before: dict[str, set[str]], report: Report
) -> dict[str, list[str]]:
    """Wait until nothing is left, and return what still is after a minute."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        after = host_state(Path(arguments.temporary), arguments.mark, report.workers)
        left = {what: sorted(after[what] - before[what]) for what in after}
        if arguments.kind == "docker":
            left["containers"] = await _containers()
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.2)


def _is_marked(words: list[str], mark: int) -> bool:
    return ("sleep" in words and str(mark) in words) or f"-u={mark % MARKS}" in words


def _launches_for(words: list[str], workers: list[int]) -> bool:
    return len(words) > 1 and words[-2].endswith("/launch.py") and words[-1] in map(str, workers)


def _descriptors() -> set[str]:
    found = set[str]()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists the directory is gone by now
            found.add(f"{entry.name} {entry.readlink()}")
    return found


def _processes() -> list[tuple[str, str]]:
    found = list[tuple[str, str]]()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                found.append((entry.name, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found


async def reap_all() -> int:
    """Give containers time to end with their harness, then reap as any later harness would."""
    api = DockerApi()
    try:
        await asyncio.sleep(SETTLED_S)
        return len(await reap(api, min_age_s=0))
    finally:
        await api.close()


async def _containers() -> list[str]:
    api = DockerApi()
    try:
        return [orphan.container for orphan in await orphans(api, min_age_s=0)]
    finally:
        await api.close()


def main() -> int:
    """Run the command line; return 1 if anything is left."""
    parser = argparse.ArgumentParser(description="Lease sandboxes, kill harnesses, look for leftovers.")
    parser.add_argument("kind", choices=available_backends())
    parser.add_argument("options", nargs="*", help="NAME=VALUE options of the backend")
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--kills", type=int, default=5, help="how often to kill -9 the harness")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--mark", type=int, default=MARKS * random.randint(100, 999) + random.randint(500, 29_999)
    )
    parser.add_argument("--worker", action="store_true", help="be the harness that is killed")
    arguments = parser.parse_args()
    if arguments.worker:
        asyncio.run(work(arguments))
        return 0
    with tempfile.TemporaryDirectory() as arguments.temporary:
        report = asyncio.run(supervise(arguments))
    print(json.dumps(asdict(report), indent=2))
    return 1 if any(report.left.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
