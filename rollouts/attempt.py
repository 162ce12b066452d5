"""One attempt at one rollout: prompt, conversation, reward, record.

A failure of the world ends the attempt as a record that names its boundary. It is returned, not raised: the
rollouts beside it go on.
"""

import time
from dataclasses import dataclass
from functools import partial

from backends.base import ToolBackend
from environments.agent_loop import Transcript, agent_loop
from environments.base import BaseAgentEnv
from environments.reward import Reward, ToolContext
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


async def attempt_rollout(spec: RolloutSpec, attempt: int, world: World) -> Trajectory:
    """Make one attempt in a fresh sandbox and return its record."""
    env, config = world.env, world.env.config
    key = f"{spec.trajectory_id}/{attempt}"
    prompt = env.prompt(spec.item)
    transcript = Transcript(list(prompt.messages))
    scored: Reward | None = None
    failure: Failure | None = None
    clock = time.perf_counter
    started = conversed = clock()
    workspace = Workspace(world.backend, key, partial(env.setup_workspace, spec.item))
    toolbox = Toolbox(
        env.tools,
        task_id=spec.trajectory_id,
        key=key,
        slot=workspace.slot,
        timeout_s=config.tool_timeout_s,
        max_result_chars=config.max_result_chars,
    )
    try:
        async with workspace:
            async with world.client.session(spec.trajectory_id, prompt.messages, toolbox.schemas) as session:
                await agent_loop(session, transcript, toolbox, env.limits, config.sampling.params(spec.seed))
            conversed = clock()
            scored = await env.score(
                spec.item, transcript, ToolContext(workspace.slot, config.reward_timeout_s)
            )
    except RolloutError as error:
        failure = Failure(error.boundary, type(error).__name__, str(error), error.retryable)
    ended = clock()
    return Trajectory(
        trajectory_id=spec.trajectory_id,
        group_id=spec.group_id,
        item_key=spec.item_key,
        repetition=spec.repetition,
        attempt=attempt,
        environment=env.name,
        config_hash=world.config_hash,
        model=world.client.model,
        seed=spec.seed,
        messages=transcript.messages,
        tools=toolbox.schemas,
        turns=transcript.turns,
        stop_reason=StopReason.ERROR if failure else transcript.stop_reason,
        ephemeral=prompt.ephemeral,
        reward=scored.value if scored else None,
        reward_parts=scored.parts if scored else {},
        turn_rewards=scored.turn_rewards if scored else [],
        metrics=scored.metrics if scored else {},
        error=failure,
        timings=Timings(
            setup_s=workspace.setup_s,
            model_s=sum(turn.model_s for turn in transcript.turns),
            tools_s=sum(turn.tools_s for turn in transcript.turns),
            reward_s=max(ended - conversed, 0.0) if scored else 0.0,
            total_s=ended - started,
        ),
    )
