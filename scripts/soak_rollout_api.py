"""Soak: ``kill -9`` of server, environment and trainer at random in a run, then an account of every group.

    python -m scripts.soak_rollout_api --groups 2000 --kill-every 1.5
    python -m scripts.soak_rollout_api --groups 2000 --store redis://127.0.0.1:6379/0

A supervisor runs the three as processes, kills one at a time and starts it again. The environment serves
groups of a scripted model; the trainer notes each group it trains on, with its delivery count, before it
acknowledges the batch. At the end every group must have been trained on; none may have been handed out after
its acknowledgement was answered; and whatever was trained on twice must have been marked the second time.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backends import FakeBackend
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from inference.scripted import ScriptedClient
from rollouts.api.client import LeaseEnded, RolloutClient
from rollouts.api.sinks import NativeSink
from rollouts.attempt import World
from rollouts.pushed_log import PushedLog
from rollouts.runner import RunLimits, Runner
from rollouts.serving import ServeLimits, Serving
from rollouts.specs import endless_plan
from rollouts.store import TrajectoryStore
from scripts.free_port import free_port
from trajectories.messages import Message
from trajectories.turn import SamplingParams, Turn

ROLES = ("server", "environment", "trainer")
LEASE_S = 2.0
BATCH = 4
GROUP_SIZE = 2
ROLLOUT_S = 0.04


@dataclass
class Report:
    """What the soak did, and every group that fared wrongly."""

    groups: int
    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    seconds: float = 0.0
    trained_once: int = 0
    trained_again_marked: int = 0
    """Groups trained on more than once: the trainer died between its step and the acknowledgement."""
    lost: list[str] = field(default_factory=list[str])
    trained_again_unmarked: list[str] = field(default_factory=list[str])
    trained_after_ack: list[str] = field(default_factory=list[str])
    invented: list[str] = field(default_factory=list[str])
    left_in_queue: int = 0

    @property
    def clean(self) -> bool:
        """Whether every group fared as promised."""
        wrong = (self.lost, self.trained_again_unmarked, self.trained_after_ack, self.invented)
        return not any(wrong) and not self.left_in_queue


class Numbers(BaseAgentEnv):
    """Numbered items without end."""

    name = "numbers"

    async def get_next_item(self):
        """Count up."""
        self.items.append({"id": str(len(self.items)), "prompt": "go"})
        return self.items[-1]

    def format_prompt(self, item):
        """Ask for nothing in particular."""
        return item["prompt"]

    async def compute_reward(self, item, result, ctx):
        """Give the number."""
        return float(item["id"])


async def serve(url: str, folder: Path, groups: int) -> None:
    """Be the environment."""

    async def reply(messages: list[Message], tools: object) -> Turn:
        await asyncio.sleep(random.uniform(0, 2 * ROLLOUT_S))
        return Turn(
            Message.assistant("done"), "stop", SamplingParams(), [1, 2, 3], [4, 5], [-0.5, -0.25], "raw"
        )

    env = Numbers(EnvConfig(group_size=GROUP_SIZE))
    world = World(env, ScriptedClient(reply), FakeBackend(), "soak")
    async with RolloutClient(url, give_up_after_s=float("inf")) as api:
        sink = NativeSink(api, env.name, "soak", weight=1.0, min_allocation=None, group_size=GROUP_SIZE)
        with (
            TrajectoryStore(folder / "trajectories.jsonl") as store,
            PushedLog(folder / "pushed.log") as pushed,
        ):
            runner = Runner(world, store, RunLimits(16, 1, 8))
            limits = ServeLimits(16, groups, require_full_groups=False, poll_s=0.1)
            serving = Serving(env.name, runner, store, pushed, sink, world.gate, limits)
            await serving.run(endless_plan("soak", GROUP_SIZE, 0, env.get_next_item))


async def train(url: str, folder: Path, groups: int) -> None:
    """Be the trainer: note, then acknowledge, then note that."""
    with (folder / "trained.jsonl").open("a") as log:

        def note(**line: object) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        log.write("\n")  # ends the line that the last one died in
        async with RolloutClient(url, give_up_after_s=float("inf")) as api:
            size = BATCH
            while True:
                batch = await api.lease(size, lease_s=LEASE_S, wait_s=1.0)
                size = BATCH if batch else 1  # the last groups may be fewer than a batch
                if batch is None:
                    continue
                for leased in batch.groups:
                    note(trained=leased.group.key, deliveries=leased.deliveries)
                await asyncio.sleep(0.01)
                try:
                    await api.ack(batch)
                except LeaseEnded:
                    continue
                for leased in batch.groups:
                    note(acked=leased.group.key)


class Supervisor:
    """Runs the three and kills them."""

    def __init__(self, folder: Path, store: str, groups: int):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.report = Report(groups)
        own = [sys.executable, "-m", "scripts.soak_rollout_api"]
        tail = [self.url, str(folder), str(groups)]
        self._commands = {
            "server": [sys.executable, "-m", "rollouts.api", "--port", str(port), "--store", store],
            "environment": [*own, "--role", "environment", *tail],
            "trainer": [*own, "--role", "trainer", *tail],
        }
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._folder = folder

    async def run(self, kill_every_s: float) -> Report:
        """Run until every group has been acknowledged; the report says how they fared."""
        started = time.monotonic()
        for role in ROLES:
            await self._start(role)
        try:
            while not await self._done():
                await asyncio.sleep(random.uniform(0, 2 * kill_every_s))
                await self._kill(random.choice(ROLES))
        finally:
            for process in self._processes.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()
        self.report.seconds = round(time.monotonic() - started, 1)
        self._account()
        return self.report

    async def _start(self, role: str) -> None:
        with (self._folder / f"{role}.log").open("ab") as log:
            command = self._commands[role]
            self._processes[role] = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)

    async def _kill(self, role: str) -> None:
        process = self._processes[role]
        if process.returncode is not None:
            if role == "environment" and process.returncode == 0:
                return  # it has served all its groups
            raise RuntimeError(
                f"the {role} died by itself: {(self._folder / f'{role}.log').read_text()[-2000:]}"
            )
        process.kill()
        await process.wait()
        self.report.kills[role] += 1
        await asyncio.sleep(random.uniform(0, 0.3))
        await self._start(role)

    async def _done(self) -> bool:
        if self._processes["environment"].returncode != 0:
            return False
        async with RolloutClient(self.url) as api:
            status = await api.status()
        self.report.left_in_queue = status.waiting + status.leased
        return self.report.left_in_queue == 0

    def _account(self) -> None:
        pushed = (self._folder / "pushed.log").read_text().split("\n")
        keys = {f"{pushed[0]}/{group_id}" for group_id in pushed[1:] if group_id}
        trained: dict[str, list[int]] = {}
        acked: set[str] = set()
        for line in (self._folder / "trained.jsonl").read_text().split("\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # an empty line, or one its writer died in
            if "acked" in entry:
                acked.add(entry["acked"])
            elif entry["trained"] in acked:
                self.report.trained_after_ack.append(entry["trained"])
            else:
                trained.setdefault(entry["trained"], []).append(entry["deliveries"])
        self.report.lost = sorted(keys - trained.keys())
        self.report.invented = sorted(trained.keys() - keys)
        again = {key: deliveries for key, deliveries in trained.items() if len(deliveries) > 1}
        self.report.trained_once = len(trained) - len(again)
        self.report.trained_again_unmarked = [key for key, marks in again.items() if min(marks[1:]) < 2]
        self.report.trained_again_marked = len(again) - len(self.report.trained_again_unmarked)


def main() -> int:
    """Run the soak, or one of its processes; 1 where a group fared wrongly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--kill-every", type=float, default=1.5, help="mean seconds between kills")
    parser.add_argument("--store", help="as of the server; a file in a temporary folder if unset")
    parser.add_argument("--role", choices=ROLES[1:], help=argparse.SUPPRESS)
    parser.add_argument("process", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role:
        url, folder, groups = asked.process
        part = serve if asked.role == "environment" else train
        asyncio.run(part(url, Path(folder), int(groups)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or os.path.join(folder, "rollouts.db")
        report = asyncio.run(Supervisor(Path(folder), store, asked.groups).run(asked.kill_every))
    print(json.dumps(asdict(report), indent=2))
    return 0 if report.clean and report.trained_once + report.trained_again_marked == asked.groups else 1


if __name__ == "__main__":
    sys.exit(main())
