"""The record of one rollout, and the group of rollouts that share a task item."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trajectories.errors import Boundary
from trajectories.messages import Message, ToolSchema
from trajectories.rows import TokenRow, token_rows
from trajectories.turn import Turn


class StopReason(StrEnum):
    """Every way a rollout ends."""

    COMPLETED = "completed"
    """The model gave an answer without a tool call."""
    MAX_TURNS = "max_turns"
    """The turn limit was reached while the model still called tools."""
    MAX_TOKENS = "max_tokens"
    """A turn was cut by its token limit."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The conversation left no room to sample."""
    DEADLINE = "deadline"
    """The rollout's time was up."""
    BUDGET = "budget"
    """A budget of the policy (calls, tokens, cost) was spent."""
    CANCELLED = "cancelled"
    """The run was stopped from outside; not trainable."""
    ERROR = "error"
    """The world failed (see ``Trajectory.error``); not trainable."""

    @property
    def trainable(self) -> bool:
        """Whether the outcome is the model's own doing, and so may be scored and trained on."""
        return self not in (StopReason.CANCELLED, StopReason.ERROR)

    @property
    def truncated(self) -> bool:
        """Whether the rollout ran out of something instead of finishing; it is scored as it stands."""
        return self.trainable and self is not StopReason.COMPLETED


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of the world, as data: a bad rollout is a record, not a crash."""

    boundary: Boundary
    type: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall time of a rollout by phase, in seconds."""

    setup_s: float = 0.0
    model_s: float = 0.0
    tools_s: float = 0.0
    reward_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout of one task item."""

    trajectory_id: str
    """Stable over retries and restarts: names the run, the item and the repetition."""
    group_id: str
    """Shared by the rollouts of one item within a run."""
    item_key: str
    repetition: int
    """Index within the group, from 0."""
    attempt: int
    """1 for the first try; earlier ones met a failure of the world."""
    environment: str
    config_hash: str
    model: str
    """Name and, where known, content hash of the model's weights."""
    seed: int
    messages: list[Message]
    """The whole conversation as the model saw it, in order."""
    tools: list[ToolSchema]
    turns: list[Turn]
    stop_reason: StopReason
    ephemeral: list[int] = field(default_factory=list[int])
    """Indices of messages that steered the run and are left out of training data."""
    reward: float | None = None
    """None where the rollout was not scored; never 0 for a failure of the world."""
    reward_parts: dict[str, float] = field(default_factory=dict[str, float])
    turn_rewards: list[float] = field(default_factory=list[float])
    """Parallel to ``turns`` where the environment gives them, else empty."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    error: Failure | None = None
    timings: Timings = field(default_factory=Timings)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def rows(self) -> list[TokenRow]:
        """Build the token rows of this rollout; empty for text-only turns."""
        return token_rows(self.turns)


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task item; ``size`` is what was asked for, so a short group says so."""

    group_id: str
    item_key: str
    size: int
    trajectories: list[Trajectory]

    @property
    def complete(self) -> bool:
        """Whether every rollout asked for was scored."""
        return len(self.rewards) == self.size

    @property
    def rewards(self) -> list[float]:
        """Raw rewards of the scored rollouts. Advantages are the trainer's business."""
        return [t.reward for t in self.trajectories if t.reward is not None]
