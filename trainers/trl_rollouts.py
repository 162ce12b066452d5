"""An environment's rollouts as the ``rollout_func`` of TRL's ``GRPOTrainer``.

The whole rollout is ours: agent loop, parser, sandbox, retries, record. TRL gets the ids that were sampled,
with logprobs and mask, and trains on them. It generates nothing itself: before each batch the trainer's
weights, as they are at that moment, go to the engine that samples.

TRL (1.16) takes one row a rollout and as many rollouts as prompts, so:

- of a rollout with several token rows the first is trained, the others are counted
  (``rollouts/rows_left_out``);
- a rollout that the world failed, or in which nothing was sampled, can't be left out: its row is one token
  that the mask excludes, and its reward is None, which TRL keeps out of the baseline
  (``rollouts/untrainable``);
- ``max_completion_length`` bounds each turn, not the rollout: later turns and tool results come on top;
- weights that ZeRO-3 or FSDP shard are not gathered: each process would hand over what it holds of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from environments.base import BaseAgentEnv
from environments.config import SamplingConfig
from environments.items import TaskItem, item_key
from inference.session import ModelClient
from rollouts.api.scored_group import scored_rollout
from rollouts.config import RunConfig, SandboxConfig
from trainers.hand_over import TakesWeights
from trainers.in_background import InBackground
from trainers.policy import merged
from trainers.prompt_response import split
from trainers.rollout_maker import RolloutMaker, open_rollouts
from trainers.trainer_sampling import trainer_sampling
from trajectories.trajectory import Trajectory

Trainer = Any
"""A ``trl.GRPOTrainer``."""


class TrlRollouts:
    """Pass it and what it offers to the trainer, and train within its ``with``.

        engine = EmbeddedEngine(folder)
        with TrlRollouts(env, ManagedClient(engine, folder), engine) as rollouts:
            data, reward = rollouts.train_dataset, rollouts.reward
            GRPOTrainer(folder, reward, args, train_dataset=data, rollout_func=rollouts).train()

    Args:
        env: Not set up yet.
        client: Samples by token ids; not started yet.
        engine: Where the client's tokens come from; is given the trainer's weights before each batch. It must
            hold the same architecture as the trainer.
        sandbox: Where tools run.
        run: Name and folder of the trajectories, rollouts in flight, and how failures are treated. Processes
            of a distributed run need a name each.
    """

    def __init__(
        self,
        env: BaseAgentEnv,
        client: ModelClient,
        engine: TakesWeights,
        sandbox: SandboxConfig = SandboxConfig(),  # noqa: B008 - never changed
        run: RunConfig = RunConfig(),  # noqa: B008 - never changed
    ):
        self._env = env
        self._engine = engine
        self._rollouts: InBackground[RolloutMaker] = InBackground(open_rollouts(env, client, sandbox, run))
        self._calls = 0

    def __enter__(self) -> "TrlRollouts":
        self._rollouts.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._rollouts.__exit__(*error)

    @property
    def train_dataset(self) -> Any:
        """The training items as a ``datasets.Dataset`` whose prompts are their keys."""
        return _keys(self._env.items)

    @property
    def eval_dataset(self) -> Any:
        """Likewise the evaluation items."""
        return _keys(self._env.eval_items)

    def __call__(self, prompts: list[str], trainer: Trainer) -> dict[str, list[Any]]:
        """Roll out one item for each prompt, which is its key.

        Raises:
            ConfigError: A prompt names no item, or the trainer samples in a way that environments don't.
            RunFailed: Nothing works.
        """
        trajectories = self._rollouts.run(self._roll_out(prompts, trainer))
        made = [_row(trajectory, trainer) for trajectory in trajectories]
        return {column: [row[column] for row in made] for column in made[0]}

    def reward(
        self,
        rollout_reward: list[float | None],
        rows_left_out: list[int],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """Return what the environment's reward was; a TRL reward function."""
        log_metric("rollouts/untrainable", sum(reward is None for reward in rollout_reward))
        log_metric("rollouts/rows_left_out", sum(rows_left_out))
        return rollout_reward

    async def _roll_out(self, prompts: Sequence[str], trainer: Trainer) -> list[Trajectory]:
        sampling = _sampling(trainer, self._env.config.sampling)
        step = trainer.state.global_step
        await self._engine.update_weights(await asyncio.to_thread(_weights, trainer), str(step))
        self._calls += 1
        wanted = [
            (f"step-{step}/{self._calls}-{number}", key, repetition)
            for number, (key, repeated) in enumerate(groupby(prompts))
            for repetition, _ in enumerate(repeated)
        ]
        return await self._rollouts.held.make_all(wanted, sampling)


def _keys(items: Sequence[TaskItem]) -> Any:
    import datasets

    return datasets.Dataset.from_dict({"prompt": [item_key(item) for item in items]})


def _weights(trainer: Trainer) -> Any:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return (merged(model) if hasattr(model, "merge_and_unload") else model).state_dict()


def _sampling(trainer: Trainer, usual: SamplingConfig) -> SamplingConfig:
    """Return how the trainer wants tokens sampled: it scales its own logits by the same temperature."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    wanted = {name: getattr(trainer, name) for name in names}
    return trainer_sampling({**wanted, "max_tokens": trainer.max_completion_length}, usual)


def _row(trajectory: Trajectory, trainer: Trainer) -> dict[str, Any]:
    scored = scored_rollout(trajectory)
    if scored is None:
        filler = [trainer.processing_class.eos_token_id]
        return {
            "prompt_ids": filler,
            "completion_ids": filler,
            "logprobs": [None],
            "env_mask": [0],
            "rollout_reward": None,
            "rows_left_out": 0,
        }
    row = split(scored.rows[0])
    return {
        "prompt_ids": row.prompt_ids,
        "completion_ids": row.response_ids,
        "logprobs": row.response_logprobs if _as_drawn(trajectory) else [None] * len(row.response_ids),
        "env_mask": row.response_mask,
        "rollout_reward": scored.reward,
        "rows_left_out": len(scored.rows) - 1,
    }


def _as_drawn(trajectory: Trajectory) -> bool:
    """Tell whether all logprobs are of the distribution drawn from, which is what TRL compares them with."""
    return all(
        turn.output_logprobs is not None and (turn.logprobs_kind == "processed" or turn.sampling.plain)
        for turn in trajectory.turns
    )
