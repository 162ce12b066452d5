"""Rewards put together from weighted parts.

A part that fails fails the reward, by name. Leaving it out, or counting it as 0, would pay the agent for
something other than what it did.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from environments.agent_loop import Transcript
from environments.items import TaskItem
from environments.reward import Reward, ToolContext
from environments.tool_use import tool_use
from trajectories.errors import RewardError, SandboxError
from trajectories.turn import Turn

Scorer = Callable[[TaskItem, Transcript, ToolContext], float | Awaitable[float]]
"""Scores one side of a rollout; `scorers` has common ones. A plain function runs in a thread of its own."""

TurnScorer = Callable[[TaskItem, Turn], float]
"""Scores one turn."""


@dataclass(frozen=True, slots=True)
class Part:
    """One side of a rollout that is scored by itself."""

    name: str
    score: Scorer
    weight: float = 1.0
    """What its score is multiplied with; with 0 it is only measured."""
    timeout_s: float | None = None
    """Longest computation, in seconds; None leaves it to the reward's limit."""


@dataclass(frozen=True, slots=True)
class TurnPart:
    """Something that each turn is scored for."""

    name: str
    score: TurnScorer
    weight: float = 1.0


class RewardParts:
    """Computes a `Reward` as the weighted sum of parts, one after the other.

    The record has what each part contributed under its name, so these sum up to the value; parts of weight 0
    and counts of the tools' use are metrics. What turns are scored for becomes the turn rewards and is no
    part of the value.

    Args:
        *parts: Parts of the value and of the turn rewards, with different names.

    Raises:
        ValueError: Two parts have one name.
    """

    def __init__(self, *parts: Part | TurnPart):
        names = [part.name for part in parts]
        if len(set(names)) != len(names):
            raise ValueError(f"two parts of a reward have one name: {', '.join(names)}")
        self._parts = [part for part in parts if isinstance(part, Part)]
        self._turn_parts = [part for part in parts if isinstance(part, TurnPart)]

    async def __call__(self, item: TaskItem, result: Transcript, ctx: ToolContext) -> Reward:
        """Compute the reward.

        Raises:
            RewardError: A part failed or took too long; the message names it.
            SandboxError: The sandbox failed.
        """
        scores = {part.name: await _score(part, item, result, ctx) for part in self._parts}
        weighted = {part.name: part.weight * scores[part.name] for part in self._parts if part.weight}
        measured = {part.name: scores[part.name] for part in self._parts if not part.weight}
        turn_rewards = _turn_rewards(self._turn_parts, item, result.turns)
        return Reward(sum(weighted.values()), weighted, {**tool_use(result), **measured}, turn_rewards)


async def _score(part: Part, item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
    try:
        async with asyncio.timeout(part.timeout_s) as limit:
            if inspect.iscoroutinefunction(part.score):
                return float(await part.score(item, result, ctx))
            score = await asyncio.to_thread(part.score, item, result, ctx)
            return float(await score if inspect.isawaitable(score) else score)
    except SandboxError:
        raise
    except RewardError as error:
        raise RewardError(f"part {part.name!r}: {error}", retryable=error.retryable) from error
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise RewardError(f"part {part.name!r} took longer than {part.timeout_s:g} s") from error
        raise RewardError(f"part {part.name!r}: {type(error).__name__}: {error}") from error


def _turn_rewards(parts: Sequence[TurnPart], item: TaskItem, turns: Sequence[Turn]) -> list[float]:
    rewards = [0.0] * len(turns) if parts else []
    for part in parts:
        for index, turn in enumerate(turns):
            try:
                rewards[index] += part.weight * float(part.score(item, turn))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise RewardError(f"part {part.name!r}, turn {index}: {reason}") from error
    return rewards
