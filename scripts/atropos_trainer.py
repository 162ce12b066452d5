"""A whole trainer on the wire of Atropos: register, take batches, train, write the weights.

    python -m rollouts.api
    python environments/terminal_env.py serve --serve.url http://127.0.0.1:8000 --model.path FOLDER
    python -m scripts.atropos_trainer --url http://127.0.0.1:8000 --model FOLDER --output data/atropos

It shows how little a trainer needs, and that one written for Atropos needs nothing more. On this wire a batch
counts as trained once it is handed out, a trainer that dies loses it, and environments are told no policy
version; `trainers.grpo` trains on leases instead. Engines read new weights from the folder that is written.
"""

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path

import aiohttp
import msgspec

from rollouts.api.legacy_wire import ScoredData, scored_rollouts
from trainers.grpo import Learner
from trainers.grpo_config import GrpoConfig
from trainers.run_files import MetricsFile
from trainers.training_rows import TrainingRow, rows_of_scored

POLL_S = 0.2
"""Between requests for a batch that is not complete yet."""


async def train(config: GrpoConfig, url: str, batch_size: int) -> None:
    """Train ``config.steps`` batches of ``batch_size`` rollouts; write metrics and, in the end, weights."""
    learner = await asyncio.to_thread(Learner, config)
    log = MetricsFile(config.output_dir / "metrics.jsonl", 0)
    async with aiohttp.ClientSession(url, raise_for_status=True) as http:
        await _register(http, config, batch_size)
        while learner.step < config.steps:
            rows = _rows(await _batch(http))
            metrics = await asyncio.to_thread(learner.update, rows)
            learner.step += 1
            log.append({"step": learner.step, **asdict(metrics)})
    await asyncio.to_thread(learner.policy.export, config.output_dir / "weights")


async def _register(http: aiohttp.ClientSession, config: GrpoConfig, batch_size: int) -> None:
    registration = {
        "wandb_group": "lachesis",
        "wandb_project": "lachesis",
        "batch_size": batch_size,
        "max_token_len": 4096,
        "checkpoint_dir": str(config.output_dir),
        "save_checkpoint_interval": 0,
        "starting_step": 0,
        "num_steps": config.steps,
    }
    async with http.post("/register", json=registration):
        pass


async def _batch(http: aiohttp.ClientSession) -> list[ScoredData]:
    while True:
        async with http.get("/batch") as response:
            batch = (await response.json())["batch"]
        if batch:
            return msgspec.convert(batch, list[ScoredData])
        await asyncio.sleep(POLL_S)


def _rows(batch: list[ScoredData]) -> list[TrainingRow]:
    groups = enumerate(batch)
    return [row for n, data in groups for row in rows_of_scored(str(n), scored_rollouts(data, str(n)))]


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder")
    parser.add_argument("--output", type=Path, required=True, help="folder of metrics and weights")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=16, help="rollouts in a batch")
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    arguments = parser.parse_args()
    config = GrpoConfig(
        model=arguments.model,
        output_dir=arguments.output,
        steps=arguments.steps,
        learning_rate=arguments.learning_rate,
    )
    asyncio.run(train(config, arguments.url, arguments.batch_size))


if __name__ == "__main__":
    main()
