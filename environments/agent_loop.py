"""The agent loop: model, calls, results, until a stop reason.

Each turn enters the transcript as it ends, so whatever interrupts the loop, the transcript holds all that
happened until then.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from environments.gate import Gate
from inference.session import Completion, Session
from toolsets.toolbox import Toolbox
from trajectories.errors import ContextOverflow, ModelError
from trajectories.messages import Message
from trajectories.trajectory import StopReason
from trajectories.turn import SamplingParams, Turn


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one rollout."""

    max_turns: int
    """Most model calls; then the rollout stops with ``max_turns``."""
    turn_timeout_s: float
    """Longest model call; a longer one is a failure of the model server."""
    deadline_s: float
    """Longest conversation; then the rollout stops with ``deadline``."""


@dataclass(slots=True)
class Transcript:
    """What a conversation has come to; what `compute_reward` gets as its ``result``."""

    messages: list[Message]
    """The prompt, then everything said since."""
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason = StopReason.CANCELLED
    """Until the loop ends by itself, it counts as interrupted."""

    @property
    def answer(self) -> str:
        """Text of the last assistant message; empty where the model has not spoken."""
        return (self.turns[-1].message.content or "") if self.turns else ""


async def agent_loop(
    session: Session,
    transcript: Transcript,
    toolbox: Toolbox,
    limits: Limits,
    sampling: SamplingParams,
    gate: Gate,
) -> None:
    """Let the model act until it stops; ``session`` has been opened with the transcript's messages.

    Each model call passes the gate first.

    Raises:
        RolloutError: The world failed; the transcript holds the turns that ended before.
    """
    try:
        async with asyncio.timeout(limits.deadline_s) as deadline:
            pass_gate = partial(gate.pass_within, deadline)
            transcript.stop_reason = await _converse(
                session, transcript, toolbox, limits, sampling, pass_gate
            )
    except ContextOverflow:
        transcript.stop_reason = StopReason.CONTEXT_OVERFLOW
    except TimeoutError:
        if not deadline.expired():
            raise
        transcript.stop_reason = StopReason.DEADLINE


async def _converse(
    session: Session,
    transcript: Transcript,
    toolbox: Toolbox,
    limits: Limits,
    sampling: SamplingParams,
    pass_gate: Callable[[], Awaitable[None]],
) -> StopReason:
    results: list[Message] = []
    for index in range(limits.max_turns):
        await pass_gate()
        completion = await _sample(session, results, _for_turn(sampling, index), limits.turn_timeout_s)
        transcript.messages.append(completion.message)
        transcript.turns.append(completion.turn)
        toolbox.governor.charge_turn(completion.turn)
        if completion.turn.finish_reason == "length":
            return StopReason.MAX_TOKENS

        started = time.perf_counter()
        answers = await toolbox.answer(completion.message, index)
        if not answers:
            return StopReason.COMPLETED
        results = [answer.message for answer in answers]
        transcript.messages.extend(results)
        transcript.turns[-1] = replace(
            completion.turn,
            tool_executions=[answer.execution for answer in answers if answer.execution],
            tools_s=time.perf_counter() - started,
        )
        if toolbox.governor.exhausted:
            return StopReason.BUDGET
    return StopReason.MAX_TURNS


async def _sample(
    session: Session, new_messages: list[Message], sampling: SamplingParams, timeout_s: float
) -> Completion:
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await session.extend(new_messages, sampling)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ModelError(f"no answer within turn_timeout_s = {timeout_s:g}") from error


def _for_turn(sampling: SamplingParams, index: int) -> SamplingParams:
    """Give each turn a seed of its own: with one seed, equal prompts would repeat equal noise."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + index)
