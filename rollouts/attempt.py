"""One attempt at one rollout: prompt, conversation, reward, record.

A failure of the world ends the attempt as a record that names its boundary. It is returned, not raised: the
rollouts beside it go on.
"""

import time
from dataclasses import dataclass, field, replace
from functools import partial

from backends.base import ToolBackend
from environments.agent_loop import Transcript, agent_loop
from environments.base import BaseAgentEnv, Prompt
from environments.gate import Gate
from environments.reward import Reward
from environments.workspace import Workspace
from inference.session import ModelClient
from rollouts.specs import RolloutSpec
from toolsets.toolbox import Toolbox
from trajectories.errors import RolloutError
from trajectories.trajectory import Failure, StopReason, Timings, Trajectory


@dataclass(frozen=True, slots=True)
class World:
    """What every rollout of a run acts in."""

    env: BaseAgentEnv
    client: ModelClient
    backend: ToolBackend
    config_hash: str
    gate: Gate = field(default_factory=Gate)
    """Every model call of a rollout passes it."""


async def attempt_rollout(spec: RolloutSpec, attempt: int, world: World) -> Trajectory:
    """Make one attempt in a fresh sandbox and return its record."""
    env, config = world.env, world.env.config
    key = f"{spec.trajectory_id}/{attempt}"
    prompt = env.prompt(spec.item)
    transcript = Transcript(list(prompt.messages))
    workspace = Workspace(
        world.backend,
        key,
        partial(env.setup_workspace, spec.item),
        image=env.image(spec.item),
        resources=env.resources(spec.item),
    )
    sampling = (spec.sampling or config.sampling).params(spec.seed)
    toolsets = env.toolsets_of(spec.group_id)
    toolbox = Toolbox(
        env.tools_of(toolsets),
        task_id=spec.trajectory_id,
        key=key,
        slot=workspace.slot,
        timeout_s=config.tool_timeout_s,
        max_result_chars=config.max_result_chars,
        policy=config.policy,
    )
    result: Reward | RolloutError
    reward_s = 0.0
    started = time.perf_counter()
    try:
        async with workspace:
            async with world.client.session(spec.trajectory_id, prompt.messages, toolbox.schemas) as session:
                await agent_loop(session, transcript, toolbox, env.limits, sampling, world.gate)
            judged_from = time.perf_counter()
            result = await env.score(spec.item, transcript, workspace)
            reward_s = time.perf_counter() - judged_from
    except RolloutError as error:
        result = error
    timings = Timings(
        setup_s=workspace.setup_s,
        model_s=sum(turn.model_s for turn in transcript.turns),
        tools_s=sum(turn.tools_s for turn in transcript.turns),
        reward_s=reward_s,
        total_s=time.perf_counter() - started,
    )
    record = _record(spec, attempt, world, prompt, toolbox, transcript, timings)
    metadata = {"toolsets": toolsets, "policy": toolbox.governor.report()}
    return _with_result(replace(record, metadata=metadata), result)


def _record(
    spec: RolloutSpec,
    attempt: int,
    world: World,
    prompt: Prompt,
    toolbox: Toolbox,
    transcript: Transcript,
    timings: Timings,
) -> Trajectory:
    return Trajectory(
        trajectory_id=spec.trajectory_id,
        group_id=spec.group_id,
        item_key=spec.item_key,
        repetition=spec.repetition,
        attempt=attempt,
        environment=world.env.name,
        config_hash=world.config_hash,
        model=world.client.model,
        seed=spec.seed,
        messages=transcript.messages,
        tools=toolbox.schemas,
        turns=transcript.turns,
        stop_reason=transcript.stop_reason,
        ephemeral=prompt.ephemeral,
        timings=timings,
    )


def _with_result(trajectory: Trajectory, result: Reward | RolloutError) -> Trajectory:
    if isinstance(result, RolloutError):
        failure = Failure(result.boundary, type(result).__name__, str(result), result.retryable)
        return replace(trajectory, stop_reason=StopReason.ERROR, error=failure)
    return replace(
        trajectory,
        reward=result.value,
        reward_parts=result.parts,
        turn_rewards=result.turn_rewards,
        metrics=result.metrics,
    )
