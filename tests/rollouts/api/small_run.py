"""A served run without sandbox or model server: also the process that the kill tests kill.

    python -m tests.rollouts.api.small_run URL FOLDER GROUPS DELAY_S

serves GROUPS groups of two rollouts with token rows and exits.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from backends import FakeBackend
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from inference.scripted import ScriptedClient
from rollouts.api.client import RolloutClient
from rollouts.api.sinks import NativeSink, Sink
from rollouts.attempt import World
from rollouts.pushed_log import PushedLog
from rollouts.runner import RunLimits, Runner
from rollouts.serving import ServeLimits, Serving
from rollouts.specs import endless_plan
from rollouts.store import TrajectoryStore
from trajectories.messages import Message
from trajectories.turn import SamplingParams, Turn


class Numbers(BaseAgentEnv):
    """Numbered items; the reward is the number."""

    name = "numbers"

    async def get_next_item(self):
        self.items.append({"id": str(len(self.items)), "prompt": f"{len(self.items)}"})
        return self.items[-1]

    def format_prompt(self, item):
        return item["prompt"]

    async def compute_reward(self, item, result, ctx):
        return float(item["id"])


def a_turn() -> Turn:
    """One turn that ends the rollout, with ids and logprobs."""
    message = Message.assistant("done")
    return Turn(message, "stop", SamplingParams(), [1, 2, 3], [4, 5], [-0.5, -0.25], "raw")


def replying_after(delay_s: float):
    async def reply(messages, tools):
        await asyncio.sleep(random.uniform(0, 2 * delay_s))
        return a_turn()

    return reply


@asynccontextmanager
async def small_serving(
    sink: Sink, folder: Path, *, script: Any = None, **changes: Any
) -> AsyncIterator[Serving]:
    """The parts of `serve` around a scripted model."""
    env = Numbers(EnvConfig(group_size=2))
    world = World(env, ScriptedClient(script or [a_turn()]), FakeBackend(), "hash")
    limits = {"max_concurrent": 8, "max_groups": 10, "require_full_groups": False, "poll_s": 0.05, **changes}
    with TrajectoryStore(folder / "trajectories.jsonl") as store, PushedLog(folder / "pushed.log") as pushed:
        runner = Runner(world, store, RunLimits(8, 1, 8))
        yield Serving("numbers", runner, store, pushed, sink, world.gate, ServeLimits(**limits))


def plan():
    return endless_plan("run", 2, 0, Numbers(EnvConfig(group_size=2)).get_next_item)


async def main(url: str, folder: str, groups: str, delay_s: str) -> None:
    async with RolloutClient(url, give_up_after_s=float("inf")) as client:
        instance = Path(folder).name
        sink = NativeSink(client, "numbers", instance, weight=1.0, min_allocation=None, group_size=2)
        script = replying_after(float(delay_s))
        async with small_serving(sink, Path(folder), script=script, max_groups=int(groups)) as serving:
            await serving.run(plan())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
