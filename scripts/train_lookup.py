"""Does it learn? A tiny model, a task that needs its tool, and the whole path between them, on a CPU.

    python -m scripts.train_lookup --output data/lookup --seed 0
    python -m scripts.train_lookup --output data/lookup-control --seed 0 --control

Environment → managed session on the embedded engine → rollout API over HTTP → GRPO → new weights →
environment. The control trains on the same rewards given to the wrong rollouts of their groups.
"""

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

from environments.lookup_env import LookupEnv, LookupEnvConfig
from inference.chat_template import OURS
from inference.embedded import EmbeddedEngine
from inference.managed import ManagedClient
from rollouts.api.client import RolloutClient
from rollouts.api.server import running_server
from rollouts.api.settings import ServerConfig
from rollouts.api.sinks import NativeSink
from rollouts.attempt import World, attempt_rollout
from rollouts.config import SandboxConfig
from rollouts.connect import open_backend
from rollouts.pushed_log import PushedLog
from rollouts.report import write_report
from rollouts.runner import RunLimits, Runner
from rollouts.serving import ServeLimits, Serving
from rollouts.specs import endless_plan, plan_groups
from rollouts.store import TrajectoryStore
from scripts.lookup_model import make_lookup_model
from trainers.api_source import ApiSource
from trainers.batches import GroupSource
from trainers.grpo_config import GrpoConfig
from trainers.grpo_run import train
from trainers.hand_over import InProcess
from trainers.shuffled_rewards import ShuffledRewards

GROUP_SIZE = 16
GROUPS_PER_STEP = 8
CONCURRENT = 128
EVALUATION_ITEMS = 256


async def learn(output: Path, *, seed: int, control: bool, steps: int) -> dict[str, Any]:
    """Make a model, train it, and return its held-out rewards before and after, and the curve between."""
    model = output / "model"
    await make_lookup_model(model, seed)
    env = LookupEnv(LookupEnvConfig(seed=seed, group_size=GROUP_SIZE))
    await env.setup()
    engine = EmbeddedEngine(model, cache_tokens=1024, threads=1)
    client = ManagedClient(engine, model, chat_template=OURS)
    config = GrpoConfig(
        model=model,
        output_dir=output,
        steps=steps,
        groups_per_step=GROUPS_PER_STEP,
        learning_rate=3e-3,
        checkpoint_every=10,
        threads=1,
    )
    async with AsyncExitStack() as stack:
        await client.start()
        stack.push_async_callback(client.close)
        backend = await stack.enter_async_context(open_backend(SandboxConfig(), 1))
        world = World(env, client, backend, config_hash="lookup")
        before = await evaluate(world)
        store = ServerConfig(port=0, store=str(output / "queue.db"), target_groups=GROUPS_PER_STEP)
        url = await stack.enter_async_context(running_server(store))
        api = await stack.enter_async_context(RolloutClient(url))
        serving = asyncio.create_task(serve(world, api, output))
        source: GroupSource = await stack.enter_async_context(ApiSource(api))
        if control:
            source = ShuffledRewards(source, seed)
        training = asyncio.create_task(train(config, source, InProcess(engine)))
        await asyncio.wait([serving, training], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        await training
        after = await evaluate(world)
    curve = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {"before": before, "after": after, "curve": curve}


async def serve(world: World, api: RolloutClient, folder: Path) -> None:
    """Push groups for as long as the trainer wants them."""
    env = world.env
    with TrajectoryStore(folder / "trajectories.jsonl") as store, PushedLog(folder / "pushed") as pushed:
        sink = NativeSink(api, env.name, pushed.run_id, weight=1, min_allocation=None, group_size=GROUP_SIZE)
        limits = ServeLimits(CONCURRENT, None, require_full_groups=False, poll_s=0.2)
        runner = Runner(world, store, RunLimits(CONCURRENT, max_attempts=3, failure_limit=8))
        serving = Serving(env.name, runner, store, pushed, sink, world.gate, limits)
        await serving.run(endless_plan("train", GROUP_SIZE, env.config.seed, env.get_next_item))


async def evaluate(world: World) -> float:
    """Return the mean reward over tables that training never sees."""
    env = LookupEnv(LookupEnvConfig(seed=world.env.config.seed + 1_000, generated_items=EVALUATION_ITEMS))
    await env.setup()
    plan = await plan_groups("held-out", EVALUATION_ITEMS, 1, env.config.seed, env.get_next_item)
    held_out = World(env, world.client, world.backend, world.config_hash)
    records = await asyncio.gather(*(attempt_rollout(group.rollouts[0], 1, held_out) for group in plan))
    return fmean(record.reward for record in records if record.reward is not None)


def main() -> None:
    """Run once; write ``report.json``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--control", action="store_true", help="shuffle the rewards within each group")
    arguments = parser.parse_args()
    result = asyncio.run(
        learn(arguments.output, seed=arguments.seed, control=arguments.control, steps=arguments.steps)
    )
    report = {
        "seed": arguments.seed,
        "control": arguments.control,
        "before": result["before"],
        "after": result["after"],
        "reward": [round(step["reward"], 3) for step in result["curve"]],
        "staleness": [round(step["staleness_mean"], 1) for step in result["curve"]],
    }
    write_report(arguments.output / "report.json", report)
    print((arguments.output / "report.json").read_text())


if __name__ == "__main__":
    main()
