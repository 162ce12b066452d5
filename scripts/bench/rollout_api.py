"""Rollout API: groups a second in and out, beside Atropos' server in the same run; memory over a long run.

    python -m scripts.bench.rollout_api --groups 200 --atropos ~/.cache/lachesis/atropos-venv/bin/python
    python -m scripts.bench.rollout_api --memory 100000

Groups are 8 rollouts of 2,048 tokens with logprobs. The same bodies go over Atropos' wire into both servers,
and as MessagePack over our native one. Each server is a process of its own, is fed by 8 connections and then
emptied in batches of 8 groups. Ours writes every group through to the disk before it answers, Atropos' keeps
it in memory. The memory run pushes and takes groups of 8 rollouts of 128 tokens and samples the server's RSS.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from rollouts.api.legacy_wire import scored_data
from rollouts.api.scored_group import ScoredGroup, ScoredRollout
from scripts.free_port import free_port
from trajectories.rows import TokenRow
from trajectories.trajectory import StopReason

ROLLOUTS = 8
PROMPT = 512
"""Tokens of a sequence that are not sampled."""
CONNECTIONS = 8
BATCH = 8
BODIES = 16
"""Different groups; sent again and again."""
KEY = "0" * 16
"""Stands in encoded native groups for the key each push gets of its own."""


@dataclass
class Measured:
    """Figures of one server on one wire."""

    name: str
    in_per_s: float
    out_per_s: float
    cpu_ms_in: float
    """Of the server, for each group."""
    cpu_ms_out: float
    rss_mb_empty: float
    rss_mb_full: float
    """With all groups queued."""
    body_kb: float


def a_group(number: int, tokens: int) -> ScoredGroup:
    """Make a group of rollouts with random ids and logprobs."""
    draw = random.Random(number)

    def row() -> TokenRow:
        prompt = min(PROMPT, tokens // 4)
        sampled = tokens - prompt
        return TokenRow(
            "start",
            [draw.randrange(150_000) for _ in range(tokens)],
            [0] * prompt + [1] * sampled,
            [*[None] * prompt, *(-draw.expovariate(1.0) for _ in range(sampled))],
            [0] * tokens,
        )

    rollouts = [
        ScoredRollout(f"{number}/{index}", draw.random(), [row()], StopReason.COMPLETED)
        for index in range(ROLLOUTS)
    ]
    return ScoredGroup(KEY, f"{number}", f"{number}", "bench", ROLLOUTS, rollouts)


class Process:
    """What the kernel knows of a server."""

    def __init__(self, pid: int):
        self._pid = pid

    def cpu_s(self) -> float:
        """User and system time of all its threads."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Resident set."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def running(command: list[str], port: int) -> AsyncIterator[Process]:
    """Run a server until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with aiohttp.ClientSession() as http:
            for _ in range(600):
                try:
                    async with http.get(f"http://127.0.0.1:{port}/info"):
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.1)
        yield Process(process.pid)
    finally:
        process.kill()
        await process.wait()


def our_server(folder: str, port: int) -> list[str]:
    """Return the command of a server of ours."""
    store = os.path.join(folder, f"{port}.db")
    flags = ["--port", str(port), "--store", store, "--max_groups", "1000000"]
    return [sys.executable, "-m", "rollouts.api", *flags]


class LegacyWire:
    """Both servers' own tongue."""

    def __init__(self, http: aiohttp.ClientSession, groups: list[ScoredGroup]):
        self._http = http
        self.bodies = [msgspec.json.encode(scored_data(group, None)[0]) for group in groups]

    async def register(self) -> None:
        """Be the trainer."""
        names = dict.fromkeys(("wandb_group", "wandb_project", "checkpoint_dir"), "bench")
        sizes = {"batch_size": BATCH * ROLLOUTS, "max_token_len": 4096}
        steps = {"save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1}
        async with self._http.post("/register", json={**names, **sizes, **steps}):
            pass

    async def push(self, number: int) -> None:
        """Push a group."""
        headers = {"Content-Type": "application/json"}
        body = self.bodies[number % BODIES]
        async with self._http.post("/scored_data", data=body, headers=headers) as response:
            await response.read()

    async def take(self, number: int) -> None:
        """Take a batch."""
        async with self._http.get("/batch") as response:
            assert len(await response.read()) > 1000, "there was no batch"


class NativeWire:
    """Our server's own tongue."""

    def __init__(self, http: aiohttp.ClientSession, groups: list[ScoredGroup]):
        self._http = http
        self.bodies = [msgspec.msgpack.encode(group) for group in groups]
        self._path = ""

    async def register(self) -> None:
        """Be an environment."""
        async with self._http.post("/v1/environments", json={"name": "bench"}) as response:
            self._path = f"/v1/groups?env_id={(await response.json())['env_id']}"

    async def push(self, number: int) -> None:
        """Push a group under a key of its own."""
        body = self.bodies[number % BODIES].replace(KEY.encode(), f"{number:016d}".encode(), 1)
        headers = {"Content-Type": "application/msgpack"}
        async with self._http.post(self._path, data=body, headers=headers) as response:
            await response.read()

    async def take(self, number: int) -> None:
        """Take a batch and acknowledge it."""
        wanted = {"lease_id": f"lease-{number}", "groups": BATCH}
        async with self._http.post("/v1/batches", json=wanted) as response:
            assert len(await response.read()) > 1000, "there was no batch"
        async with self._http.post(f"/v1/batches/lease-{number}/ack") as response:
            await response.read()


async def timed(count: int, connections: int, call: Callable[[int], Awaitable[None]]) -> float:
    """Call with every number below ``count`` over some connections; returns seconds."""
    numbers = iter(range(count))

    async def connection() -> None:
        for number in numbers:
            await call(number)

    started = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(connections)))
    return time.perf_counter() - started


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Give a session that raises on refusals and waits for slow servers."""
    timeout = aiohttp.ClientTimeout(total=None)
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(url, raise_for_status=True, timeout=timeout) as http:
        yield http


async def measure(
    name: str, command: list[str], port: int, wire_class: type[LegacyWire] | type[NativeWire], groups: int
) -> Measured:
    """Fill a server with groups and empty it again."""
    made = [a_group(number, 2048) for number in range(BODIES)]
    async with running(command, port) as server, connected(port) as http:
        wire = wire_class(http, made)
        await wire.register()
        empty_mb, cpu_start = server.rss_mb(), server.cpu_s()
        in_s = await timed(groups, CONNECTIONS, wire.push)
        full_mb, cpu_full = server.rss_mb(), server.cpu_s()
        out_s = await timed(groups // BATCH, 1, wire.take)
        return Measured(
            name=name,
            in_per_s=groups / in_s,
            out_per_s=groups / out_s,
            cpu_ms_in=1000 * (cpu_full - cpu_start) / groups,
            cpu_ms_out=1000 * (server.cpu_s() - cpu_full) / groups,
            rss_mb_empty=empty_mb,
            rss_mb_full=full_mb,
            body_kb=sum(map(len, wire.bodies)) / BODIES / 1024,
        )


async def memory(groups: int, folder: str) -> None:
    """Push groups and take them; prints the server's resident set after so many."""
    port, every = free_port(), max(groups // 20, 1)
    print("groups | server MiB")
    async with running(our_server(folder, port), port) as server, connected(port) as http:
        wire = NativeWire(http, [a_group(number, 128) for number in range(BODIES)])
        await wire.register()
        for start in range(0, groups, every):
            count = min(every, groups - start)

            async def push(number: int, start: int = start) -> None:
                await wire.push(start + number)

            await timed(count, CONNECTIONS, push)
            for number in range(start // BATCH, (start + count) // BATCH):
                await wire.take(number)
            print(f"{start + count:>6} | {server.rss_mb():.1f}", flush=True)


async def compare(groups: int, atropos_python: str | None, folder: str) -> list[Measured]:
    """Measure every server and wire."""
    measured: list[Measured] = []
    if atropos_python:
        port = free_port()
        command = [atropos_python, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(port)]
        measured.append(await measure("Atropos 0.4", command, port, LegacyWire, groups))
    for name, wire in (("ours, Atropos' wire", LegacyWire), ("ours, native", NativeWire)):
        port = free_port()
        measured.append(await measure(name, our_server(folder, port), port, wire, groups))
    return measured


def table(measured: list[Measured]) -> str:
    """Lay the figures out as Markdown."""
    lines = [
        "| server, wire | groups/s in | groups/s out | CPU ms in | CPU ms out | MiB empty | full | KB each |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for m in measured:
        figures = (
            m.in_per_s,
            m.out_per_s,
            m.cpu_ms_in,
            m.cpu_ms_out,
            m.rss_mb_empty,
            m.rss_mb_full,
            m.body_kb,
        )
        lines.append(f"| {m.name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the comparison, or the memory run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=160)
    parser.add_argument("--atropos", help="a Python that has atroposlib 0.4.0; left out if unset")
    parser.add_argument("--memory", type=int, help="instead: push and take so many small groups")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.memory:
            asyncio.run(memory(asked.memory, folder))
        else:
            print(table(asyncio.run(compare(asked.groups, asked.atropos, folder))))


if __name__ == "__main__":
    main()
