"""An environment's rollouts as a SkyRL generator: SkyRL's (0.3) ``GeneratorInterface``, by its shape.

Return it from ``get_generator`` of a SkyRL experiment. Tokens come from SkyRL's own inference engines. A
dataset row names its task item in the column ``item_key``.

SkyRL has no way to leave a rollout out. One that the world failed, or in which no token was sampled, is one
token that the mask excludes, with the mean reward of its group: so the group's mean is as without it, and its
deviation a little smaller. Where no rollout of a group has a reward, all get the same (the batch's mean, or
0), so none has an advantage. How many they were is in ``rollout_metrics``.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from environments.base import BaseAgentEnv
from inference.managed import ManagedClient
from inference.model_files import load_model_files
from rollouts.api.scored_group import ScoredRollout, scored_rollout
from rollouts.config import RunConfig, SandboxConfig
from trainers.lent_engine import LentAnswer, LentCall, LentEngine
from trainers.opened_once import OpenedOnce
from trainers.prompt_response import split
from trainers.rollout_maker import RolloutMaker, open_rollouts
from trainers.trainer_sampling import trainer_sampling
from trajectories.errors import ConfigError, ModelError
from trajectories.trajectory import StopReason, Trajectory


class SkyRLGenerator:
    """Makes the rollouts of a SkyRL batch.

    Args:
        env: Not set up yet.
        inference_engine_client: SkyRL's.
        tokenizer: Folder or hub name of the model's tokenizer.
        context_length: Most tokens that prompt and output may have together.
        step_wise: SkyRL's ``generator.step_wise_trajectories``. With it, a rollout of several token rows is
            handed over whole, and its advantage is computed once; without it SkyRL takes one row a rollout,
            so the others are left out and counted.
        sandbox: Where tools run.
        run: Name and folder of the trajectories, rollouts in flight, and how failures are treated.
    """

    def __init__(
        self,
        env: BaseAgentEnv,
        inference_engine_client: Any,
        tokenizer: str,
        context_length: int,
        *,
        step_wise: bool,
        sandbox: SandboxConfig = SandboxConfig(),  # noqa: B008 - never changed
        run: RunConfig = RunConfig(),  # noqa: B008 - never changed
    ):
        files = load_model_files(tokenizer)
        engine = LentEngine(
            _asking(inference_engine_client),
            model=tokenizer,
            vocab_size=files.vocab_size,
            context_length=context_length,
            logprobs_kind="processed",
            fixed={"logprobs": 0, "skip_special_tokens": False},
        )
        self._rollouts: OpenedOnce[RolloutMaker] = OpenedOnce(
            lambda: open_rollouts(env, ManagedClient(engine, files), sandbox, run)
        )
        self._step_wise = step_wise

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a ``GeneratorOutput`` for a ``GeneratorInput``, in its order.

        Raises:
            ConfigError: A row names no item, or sampling is asked for that environments don't offer.
        """
        rollouts = await self._rollouts()
        ids, extras = input_batch["trajectory_ids"], input_batch["env_extras"]
        if ids is None or extras is None:
            raise ConfigError("SkyRL's batch has no trajectory_ids or no env_extras, which name the item_key")
        sampling = trainer_sampling(input_batch["sampling_params"] or {}, rollouts.env.config.sampling)
        metadata = input_batch.get("batch_metadata")
        phase = f"{metadata.training_phase}-{metadata.global_step}" if metadata else "step"
        wanted = [
            (f"{phase}/{each.instance_id}", extra["item_key"], each.repetition_id)
            for each, extra in zip(ids, extras, strict=True)
        ]
        trajectories = await rollouts.make_all(wanted, sampling)
        return generator_output(ids, trajectories, step_wise=self._step_wise)

    async def close(self) -> None:
        """End the sandboxes and close the log; idempotent."""
        await self._rollouts.close()


def generator_output(
    ids: Sequence[Any], trajectories: Sequence[Trajectory], *, step_wise: bool
) -> dict[str, Any]:
    """Return a ``GeneratorOutput``.

    Args:
        ids: SkyRL's ``TrajectoryID`` of each rollout; those of a group share their ``instance_id``.
        trajectories: Parallel to ``ids``.
        step_wise: See `SkyRLGenerator`.
    """
    scored = [scored_rollout(trajectory) for trajectory in trajectories]
    baselines = _group_means(ids, scored)
    rows: list[dict[str, Any]] = []
    left_out = 0
    for each, trajectory, rollout in zip(ids, trajectories, scored, strict=True):
        made = _rows(trajectory, rollout, baselines[each.instance_id])
        taken = made if step_wise else made[:1]
        left_out += len(made) - len(taken)
        shared = {"trajectory_ids": each, "trajectory_generation_times": trajectory.timings.total_s}
        rows += [{**row, **shared, "is_last_step": row is taken[-1]} for row in taken]
    output: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    if any(logprobs is None for logprobs in output["rollout_logprobs"]):
        output["rollout_logprobs"] = None
    if not step_wise:
        output["is_last_step"] = None
    output["rollout_metrics"] = {
        "rollouts/untrainable": sum(rollout is None for rollout in scored),
        "rollouts/rows_left_out": left_out,
    }
    return output


def _rows(trajectory: Trajectory, rollout: ScoredRollout | None, baseline: float) -> list[dict[str, Any]]:
    stopped = "stop" if trajectory.stop_reason is StopReason.COMPLETED else "length"
    if rollout is None:
        return [_row([0], [0], [0], [0.0], baseline, stopped)]
    return [
        _row(
            part.prompt_ids,
            part.response_ids,
            part.response_mask,
            part.filled_logprobs(),
            rollout.reward,
            stopped,
        )
        for part in map(split, rollout.rows)
    ]


def _row(
    prompt_ids: list[int],
    response_ids: list[int],
    mask: list[int],
    logprobs: list[float] | None,
    reward: float,
    stopped: str,
) -> dict[str, Any]:
    return {
        "prompt_token_ids": prompt_ids,
        "response_ids": response_ids,
        "loss_masks": mask,
        "rollout_logprobs": logprobs,
        "rewards": reward,
        "stop_reasons": stopped,
    }


def _group_means(ids: Sequence[Any], scored: Sequence[ScoredRollout | None]) -> dict[str, float]:
    """Return each group's mean reward; that of the batch, or 0, where nothing of a group was scored."""
    batch = fmean([rollout.reward for rollout in scored if rollout] or [0.0])
    groups: dict[str, list[float]] = {each.instance_id: [] for each in ids}
    for each, rollout in zip(ids, scored, strict=True):
        groups[each.instance_id] += [rollout.reward] if rollout else []
    return {name: fmean(rewards) if rewards else batch for name, rewards in groups.items()}


def _asking(inference_engine_client: Any) -> LentCall:
    async def ask(prompt_ids: list[int], params: dict[str, Any], session_id: str) -> LentAnswer:
        request = {"prompt_token_ids": [prompt_ids], "session_ids": [session_id], "sampling_params": params}
        output = await inference_engine_client.generate(request)
        if output["stop_reasons"][0] not in ("stop", "length"):
            raise ModelError(f"SkyRL's engine ended its output with {output['stop_reasons'][0]!r}")
        logprobs = output.get("response_logprobs")
        return LentAnswer(output["response_ids"][0], logprobs[0] if logprobs else None)

    return ask
