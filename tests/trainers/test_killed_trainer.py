"""The real trainer, killed with -9 again and again: the final weights have learned from each group once."""

import asyncio
import json
import multiprocessing
import random
from pathlib import Path

import pytest

from rollouts.api.client import RolloutClient
from rollouts.api.server import running_server
from rollouts.api.settings import ServerConfig
from tests.backends.host_processes import until
from tests.trainers.rows import scored_group
from trainers.api_source import ApiSource
from trainers.grpo_config import GrpoConfig
from trainers.grpo_run import GrpoRun

pytest.importorskip("torch")

GROUPS, PER_STEP = 80, 2


async def hand_over(policy, version):
    """Give the weights to nobody."""


async def train(url: str, config: GrpoConfig) -> None:
    """Train to the end, noting which groups each step's update was computed from."""
    with (config.output_dir / "updates.jsonl").open("a") as log:
        log.write("\n")  # ends the line that the last one died in
        async with RolloutClient(url) as client, ApiSource(client, lease_s=1.0) as source:
            run = GrpoRun(config, source, hand_over)
            update = run.learner.update

            def noted(rows):
                groups = sorted({row.group_id for row in rows})
                log.write(json.dumps({"step": run.learner.step + 1, "groups": groups}) + "\n")
                log.flush()
                return update(rows)

            run.learner.update = noted
            await run.publish()
            while run.learner.step < config.steps:
                await run.take_step()


def live_trainer(url: str, config: GrpoConfig) -> None:
    asyncio.run(train(url, config))


def learned_from(log: Path) -> list[str]:
    """The groups of every step that stands: of a step that was undone and made again, the last making."""
    steps = {}
    for line in log.read_text().split("\n"):
        try:
            update = json.loads(line)
        except ValueError:
            continue  # an empty line, or one its writer died in
        steps[update["step"]] = update["groups"]
    assert sorted(steps) == list(range(1, GROUPS // PER_STEP + 1))
    return [group for step in sorted(steps) for group in steps[step]]


async def test_killed_at_random_moments_it_trains_each_group_once(tiny_folder, tmp_path):
    spawn = multiprocessing.get_context("forkserver")
    spawn.set_forkserver_preload(["torch", "transformers", "trainers.grpo_run"])
    draws = random.Random()
    config = GrpoConfig(
        model=tiny_folder,
        output_dir=tmp_path / "run",
        steps=GROUPS // PER_STEP,
        groups_per_step=PER_STEP,
        checkpoint_every=3,
        max_staleness=None,
        learning_rate=0.01,
        threads=1,
    )
    config.output_dir.mkdir()
    noted = config.output_dir / "updates.jsonl"
    api = ServerConfig(port=0, store=str(tmp_path / "queue.db"))
    kills = 0
    async with running_server(api) as url, RolloutClient(url) as client:
        environment = await client.register("test")
        pushed = [f"g{index}" for index in range(GROUPS)]
        for name in pushed:
            await client.push(environment.env_id, scored_group(name, [1.0, 0.0]))
        while True:
            trainer = spawn.Process(target=live_trainer, args=(url, config))
            trainer.start()
            lives_s = draws.uniform(0.5, 4.0) if kills < 8 else None
            if not kills:  # the first one dies amid its work, however fast it works
                await until(lambda: noted.exists() and "step" in noted.read_text())
                lives_s = 0.0
            await asyncio.to_thread(trainer.join, lives_s)
            if trainer.exitcode is not None:
                break
            trainer.kill()
            await asyncio.to_thread(trainer.join)
            kills += 1
    assert trainer.exitcode == 0
    assert kills
    assert sorted(learned_from(noted)) == sorted(pushed)
