"""Teach SmolLM2-135M-Instruct the easy terminal tasks with GRPO, in this process, on a CPU.

    python scripts/train_demo.py --model "$(python scripts/fetch_model.py)" --output data/train-demo

Beside it, with ``--control`` and another folder, the same training on rewards that were given to the wrong
rollouts of their groups.

Held-out tasks are evaluated before and after. A run that was interrupted goes on with the same command.
"""

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from environments.estimates import Estimate
from environments.terminal_env import TerminalEnv, TerminalEnvConfig
from inference.embedded import EmbeddedEngine
from inference.managed import ManagedClient
from rollouts.attempt import World
from rollouts.config import SandboxConfig
from rollouts.connect import open_backend
from rollouts.report import write_report
from rollouts.runner import RunLimits, Runner
from rollouts.specs import plan_items
from rollouts.store import TrajectoryStore
from trainers.grpo_config import GrpoConfig, LoraConfig
from trainers.grpo_run import train
from trainers.hand_over import InProcess
from trainers.local_source import open_local_source
from trainers.shuffled_rewards import ShuffledRewards

LIMITS = RunLimits(max_concurrent=32, max_attempts=3, failure_limit=8)
EVALUATION_SAMPLES = 2
"""Rollouts of each held-out task."""

ENVIRONMENT = TerminalEnvConfig(
    tier="easy",
    toolsets=["terminal"],
    group_size=8,
    max_turns=1,
    worked_examples=6,
    ephemeral_system_prompt="You do file tasks in a shell. Call the terminal tool once, then say Done.",
)
ENVIRONMENT.sampling.max_tokens = 48


def main() -> None:
    """Train and report."""
    arguments = _arguments()
    asyncio.run(run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Evaluate, train, evaluate; write the report into the output folder."""
    output: Path = arguments.output
    model: Path = arguments.model
    env = TerminalEnv(ENVIRONMENT)
    await env.setup()
    engine = EmbeddedEngine(model, threads=arguments.threads)
    client = ManagedClient(engine, model)
    config = GrpoConfig(
        model=model,
        output_dir=output,
        steps=arguments.steps,
        groups_per_step=4,
        learning_rate=arguments.learning_rate,
        lora=LoraConfig(rank=16),
        tokens_per_pass=3072,
        threads=arguments.threads,
    )
    async with AsyncExitStack() as stack:
        await client.start()
        stack.push_async_callback(client.close)
        backend = await stack.enter_async_context(open_backend(SandboxConfig(), LIMITS.max_concurrent))
        world = World(env, client, backend, config_hash="train-demo")
        before = await evaluate(world, output / "before", arguments.evaluation_items)
        local = await stack.enter_async_context(open_local_source(world, output, LIMITS, "train-demo"))
        source = ShuffledRewards(local, seed=0) if arguments.control else local
        await train(config, source, InProcess(engine))
        after = await evaluate(world, output / "after", arguments.evaluation_items)
    report(output, arguments, before, after)


async def evaluate(world: World, folder: Path, items: int) -> dict[str, Estimate]:
    """Roll out held-out tasks with the weights the engine has; done before, it is only read again."""
    held_out, seed = world.env.eval_items[:items], world.env.config.seed
    plan = plan_items("held-out", held_out, EVALUATION_SAMPLES, seed)
    with TrajectoryStore(folder / "trajectories.jsonl") as store:
        await Runner(world, store, LIMITS).run(spec for group in plan for spec in group.rollouts)
        return await world.env.evaluate([store.group(spec) for spec in plan])


def report(
    output: Path, arguments: argparse.Namespace, before: dict[str, Estimate], after: dict[str, Estimate]
) -> None:
    """Write ``report.json`` and print it."""
    steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    content = {
        "control": arguments.control,
        "steps": arguments.steps,
        "learning_rate": arguments.learning_rate,
        "evaluation_items": arguments.evaluation_items,
        "before": before,
        "after": after,
        "reward": [step["reward"] for step in steps],
        "seconds": sum(step["collect_s"] + step["update_s"] + step["publish_s"] for step in steps),
    }
    write_report(output / "report.json", content)
    print((output / "report.json").read_text())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder of checkpoints, metrics and report"
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--evaluation-items", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="cores to compute with")
    parser.add_argument("--control", action="store_true", help="shuffle the rewards within each group")
    return parser.parse_args()


if __name__ == "__main__":
    main()
