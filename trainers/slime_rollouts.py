"""An environment's rollouts as slime's (0.3) custom generate function, and the hooks that keep them honest.

slime is not on a package index: this is written to its documented shapes (``slime.utils.types.Sample``,
``--custom-generate-function-path``) and tested against a stand-in of them. A module of yours holds

    generate = SlimeRollouts(TerminalEnv(TerminalEnvConfig()))

for ``--custom-generate-function-path``, and the two other functions here are named as they stand:

- ``--dynamic-sampling-filter-path trainers.slime_rollouts.fill_failed``: a rollout that the world failed gets
  its group's mean reward (slime can't leave it out; its mask is empty), a group without any score is dropped;
- ``--custom-reward-post-process-path trainers.slime_rollouts.advantages``: rewards against the mean of the
  group's rollouts, each counted once. slime's own compares with the whole batch as soon as one rollout has
  two rows. Its loss shares a rollout's weight among its rows by ``rollout_id``, which is set here.

slime's evaluation calls the same function, but neither filter nor hook: there a rollout is one sample, and
one that the world failed ends the evaluation.

A sample names its task item in ``metadata["item_key"]``.
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from environments.base import BaseAgentEnv
from inference.http_engine import HttpEngine
from inference.managed import ManagedClient
from inference.model_files import load_model_files
from inference.sglang import SglangGenerate
from rollouts.api.scored_group import scored_rollout
from rollouts.config import RunConfig, SandboxConfig
from trainers.opened_once import OpenedOnce
from trainers.prompt_response import split
from trainers.rollout_maker import RolloutMaker, open_rollouts
from trainers.trainer_sampling import trainer_sampling
from trainers.training_rows import group_relative
from trajectories.errors import ConfigError, ModelError
from trajectories.rows import TokenRow
from trajectories.trajectory import Trajectory

Sample = Any
"""A ``slime.utils.types.Sample``."""


class SlimeRollouts:
    """A custom generate function.

    Args:
        env: Not set up yet.
        sandbox: Where tools run.
        run: Name and folder of the trajectories, rollouts in flight, and how failures are treated.
    """

    def __init__(
        self,
        env: BaseAgentEnv,
        sandbox: SandboxConfig = SandboxConfig(),  # noqa: B008 - never changed
        run: RunConfig = RunConfig(),  # noqa: B008 - never changed
    ):
        self._env = env
        self._sandbox = sandbox
        self._run = run
        self._rollouts: OpenedOnce[RolloutMaker] | None = None
        self._evaluations = Counter[tuple[str, int]]()
        self._process = uuid.uuid4().hex[:8]

    async def __call__(
        self, args: Any, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
    ) -> Sample | list[Sample]:
        """Roll the sample's item out; one sample a token row, or only one if slime evaluates.

        Raises:
            ConfigError: There is no such item, a setting is missing, or sampling is asked for that
                environments don't offer.
            ModelError: The world failed a rollout of an evaluation.
        """
        if self._rollouts is None:
            self._rollouts = OpenedOnce(
                lambda: open_rollouts(self._env, _client(args), self._sandbox, self._run)
            )
        rollouts = await self._rollouts()
        sampling = trainer_sampling(sampling_params, self._env.config.sampling)
        key = sample.metadata["item_key"]
        if not evaluation:
            trajectory = await rollouts.make(f"group-{sample.group_index}", key, sample.index, sampling)
            return samples_of(sample, trajectory)
        # slime numbers the samples of each evaluation from 0 again, in each process
        self._evaluations[key, sample.index] += 1
        group = f"evaluation-{self._process}-{self._evaluations[key, sample.index]}"
        return evaluated(sample, await rollouts.make(group, key, sample.index, sampling))

    async def close(self) -> None:
        """End the sandboxes and close the log; idempotent."""
        if self._rollouts is not None:
            await self._rollouts.close()


def samples_of(sample: Sample, trajectory: Trajectory) -> Sample | list[Sample]:
    """Return a rollout as slime takes it; one without a score is aborted, removed, and has no reward yet."""
    scored = scored_rollout(trajectory)
    shared = {
        "rollout_id": sample.index if sample.rollout_id is None else sample.rollout_id,
        "metadata": {**sample.metadata, "trajectory_id": trajectory.trajectory_id},
    }
    if scored is None:
        return replace(
            sample,
            **shared,
            tokens=[0, 0],
            response="",
            response_length=1,
            loss_mask=[0],
            rollout_log_probs=[0.0],
            reward=None,
            remove_sample=True,
            status=sample.Status.ABORTED,
        )
    truncated = trajectory.stop_reason.truncated
    common = {
        **shared,
        "response": trajectory.turns[-1].message.content or "",
        "reward": scored.reward,
        "remove_sample": False,
        "status": sample.Status.TRUNCATED if truncated else sample.Status.COMPLETED,
    }
    made = [replace(sample, **common, **_tokens(row)) for row in scored.rows]
    return made[0] if len(made) == 1 else made


def evaluated(sample: Sample, trajectory: Trajectory) -> Sample:
    """Return a rollout as slime evaluates it: the reward once, whatever its rows.

    Raises:
        ModelError: The world failed it; slime's mean over an evaluation can't leave a rollout out.
    """
    if trajectory.reward is None:
        why = trajectory.error.message if trajectory.error else "it was not scored"
        raise ModelError(f"{trajectory.trajectory_id} has no reward: {why}")
    made = samples_of(sample, trajectory)
    return replace(made[0] if isinstance(made, list) else made, reward=trajectory.reward)


def _tokens(row: TokenRow) -> dict[str, Any]:
    part = split(row)
    return {
        "tokens": row.token_ids,
        "response_length": len(part.response_ids),
        "loss_mask": part.response_mask,
        "rollout_log_probs": part.filled_logprobs(),
        "weight_versions": list(dict.fromkeys(span.version for span in row.policy_versions)),
    }


def fill_failed(args: Any, samples: Sequence[Sample | list[Sample]], **_: Any) -> bool:
    """Give failed rollouts their group's mean reward; tell whether any was scored. A slime filter."""
    rollouts = [each if isinstance(each, list) else [each] for each in samples]
    rewards = [rows[0].reward for rows in rollouts if not rows[0].remove_sample]
    if not rewards:
        return False
    for rows in rollouts:
        for row in rows:
            if row.remove_sample:
                row.reward = fmean(rewards)
    return True


def advantages(args: Any, samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Return raw rewards and group-relative advantages, both parallel to ``samples``. A slime hook."""
    groups: dict[int, dict[int, float]] = {}
    for sample in samples:
        if not sample.remove_sample:
            groups.setdefault(sample.group_index, {})[sample.rollout_id] = sample.reward
    of_rollout: dict[int, float] = {}
    for rewards in groups.values():
        of_rollout |= zip(rewards, group_relative(list(rewards.values())), strict=True)
    raw = [sample.reward for sample in samples]
    return raw, [0.0 if each.remove_sample else of_rollout[each.rollout_id] for each in samples]


def _client(args: Any) -> ManagedClient:
    if not args.rollout_max_context_len:
        raise ConfigError("--rollout-max-context-len: must be set, so that rollouts end in time")
    files = load_model_files(args.hf_checkpoint)
    engine = HttpEngine(
        f"http://{args.sglang_router_ip}:{args.sglang_router_port}",
        SglangGenerate(),
        model=str(args.hf_checkpoint),
        vocab_size=files.vocab_size,
        context_length=args.rollout_max_context_len,
    )
    return ManagedClient(engine, files)
