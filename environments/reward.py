"""Rewards, and the judge's hands on the sandbox.

A reward that can't be computed is a `RewardError`, never a 0: training on a zero that no behaviour earned
teaches the model that what it did was wrong.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from backends.base import ExecutionResult, Slot
from trajectories.errors import RewardError


@dataclass(frozen=True, slots=True)
class Reward:
    """A score and what it is made of."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)
    """Named components of the value, for the record."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Measurements that are no part of the value."""
    turn_rewards: list[float] = field(default_factory=list)
    """One per turn, where the environment credits turns; else empty."""


def checked_reward(reward: "float | Reward", turns: int) -> Reward:
    """Return ``reward`` as a `Reward`.

    Raises:
        RewardError: It is not finite, or its turn rewards are not one per turn.
    """
    reward = reward if isinstance(reward, Reward) else Reward(float(reward))
    if not all(map(math.isfinite, (reward.value, *reward.parts.values(), *reward.turn_rewards))):
        raise RewardError(f"compute_reward gave a number that is not finite: {reward}", retryable=False)
    if reward.turn_rewards and len(reward.turn_rewards) != turns:
        raise RewardError(f"{len(reward.turn_rewards)} turn rewards for {turns} turns", retryable=False)
    return reward


class ToolContext:
    """What `compute_reward` may ask of the sandbox the agent left behind.

    Commands run in a shell of the harness's own, opened before the agent's first command: nothing the agent
    defined there (functions, aliases, traps, PATH) is evaluated.
    """

    def __init__(self, slot: Callable[[], Awaitable[Slot]], timeout_s: float):
        self._slot = slot
        self._timeout_s = timeout_s

    async def workspace(self) -> str:
        """Return the workspace's absolute path inside the sandbox."""
        return (await self._slot()).workspace

    async def exec(
        self, command: str, *, stdin: bytes | None = None, timeout_s: float | None = None
    ) -> ExecutionResult:
        """Run a shell command in the workspace.

        Args:
            command: Bash source text.
            stdin: Bytes on its standard input; None is an empty input.
            timeout_s: Limit of this command, for those that run what is judged: to run into it is a result
                (``timed_out``). Without it the reward's own limit holds, and running into that is a failure.

        Raises:
            RewardError: It did not end within the reward's time limit.
        """
        slot = await self._slot()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        result = await slot.exec(command, timeout_s=limit_s, stdin=stdin, shell="control")
        if result.timed_out and timeout_s is None:
            raise RewardError(f"the check {command!r} did not end within {self._timeout_s:g} s")
        return result

    async def passes(self, command: str) -> bool:
        """Tell whether a shell command exits with 0."""
        return (await self.exec(command)).exit_code == 0

    async def read_text(self, path: str) -> str | None:
        """Return a file's text, undecodable bytes replaced; None where there is no such file."""
        slot = await self._slot()
        try:
            return (await slot.read_file(path)).decode("utf-8", "replace")
        except OSError:
            return None
