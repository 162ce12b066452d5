"""A scored group on its way from environment to trainer: rewards and token rows, without the conversation.

What a trainer needs and no more; the whole record stays in the environment's trajectory log, under the same
trajectory ids. Rewards are raw: advantages are computed at the trainer's edge.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from trajectories.rows import TokenRow
from trajectories.trajectory import Group, StopReason, Trajectory

MAX_KEY_CHARS = 512
MAX_VERSION_CHARS = 200
MAX_TOKEN_ID = 2**31 - 1
MAX_LOGPROB = 0.5
"""Engines that compute in few bits round to just above 0; Atropos' 1.0, which stands for none, is more."""


class BadGroup(ValueError):
    """A group that can't be trained on; the message names the field."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """One scored rollout."""

    trajectory_id: str
    reward: float
    rows: list[TokenRow]
    """At least one; a rollout whose history was edited has several. Together they weigh as one rollout."""
    stop_reason: StopReason | None = None
    """None where the environment did not say."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scored rollouts of one task item."""

    key: str
    """Names the group for all time: a group that is pushed again under the same key is not queued again."""
    group_id: str
    item_key: str
    environment: str
    size: int
    """Rollouts that were asked for; those the world failed are missing from ``rollouts``."""
    rollouts: list[ScoredRollout]
    policy_version: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """Oldest policy version that sampled any of its tokens; None: the one at the time of the push."""
    extras: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the legacy wire carries beyond this form (advantages, overrides, images), as it came."""


def scored_rollout(trajectory: Trajectory) -> ScoredRollout | None:
    """Take what a trainer needs from a rollout; None where the world failed it or no token was sampled.

    A rollout without sampled tokens (its prompt did not fit, its first turn came too late) is no act of the
    policy: it has nothing to train, and its reward is no part of a baseline.

    Raises:
        AlignmentError: Its token arrays are not parallel.
    """
    if trajectory.reward is None:
        return None
    rows = [row for row in trajectory.rows() if any(row.loss_mask)]
    if not rows:
        return None
    return ScoredRollout(
        trajectory.trajectory_id, trajectory.reward, rows, trajectory.stop_reason, trajectory.metrics
    )


def scored_group(
    group: Group, run_id: str, environment: str, policy_version: int | None
) -> ScoredGroup | None:
    """Take what a trainer needs from a group; None where no rollout of it can be trained on.

    Args:
        group: The group's records.
        run_id: Tells this run's groups from those of another run with the same name.
        environment: Name of the environment.
        policy_version: Oldest version that sampled any of the group's tokens.
    """
    rollouts = [scored for t in group.trajectories if (scored := scored_rollout(t)) is not None]
    if not rollouts:
        return None
    key = f"{run_id}/{group.group_id}"
    return ScoredGroup(key, group.group_id, group.item_key, environment, group.size, rollouts, policy_version)


def check_group(group: ScoredGroup) -> None:
    """Check all that the types don't say.

    Raises:
        BadGroup: Something can't be trained on.
    """
    if not 0 < len(group.key) <= MAX_KEY_CHARS:
        raise BadGroup(f"key: must have 1 to {MAX_KEY_CHARS} characters, has {len(group.key)}")
    if not group.rollouts:
        raise BadGroup("rollouts: is empty; a group without scored rollouts is not pushed")
    if group.size < len(group.rollouts):
        raise BadGroup(f"size: is {group.size}, but there are {len(group.rollouts)} rollouts")
    for index, rollout in enumerate(group.rollouts):
        path = f"rollouts[{index}]"
        if not math.isfinite(rollout.reward):
            raise BadGroup(f"{path}.reward: must be finite, is {rollout.reward}")
        if not rollout.rows:
            raise BadGroup(f"{path}.rows: is empty; leave out rollouts that can't be trained on")
        for number, row in enumerate(rollout.rows):
            _check_row(row, f"{path}.rows[{number}]")


def _check_row(row: TokenRow, path: str) -> None:
    length = len(row.token_ids)
    for name in ("loss_mask", "logprobs", "turn_index"):
        if len(getattr(row, name)) != length:
            raise BadGroup(f"{path}.{name}: has {len(getattr(row, name))} entries for {length} token ids")
    if not length:
        raise BadGroup(f"{path}.token_ids: is empty")
    check_ids(row.token_ids, f"{path}.token_ids")
    if not set(row.loss_mask) <= {0, 1}:
        raise BadGroup(f"{path}.loss_mask: must hold only 0 and 1")
    if 1 not in row.loss_mask:
        raise BadGroup(f"{path}.loss_mask: trains no token")
    if row.loss_mask[0]:
        raise BadGroup(f"{path}.loss_mask: trains the first token, before which nothing stands")
    known = [value for value in row.logprobs if value is not None]
    if known and not (math.isfinite(sum(known)) and max(known) <= MAX_LOGPROB):
        raise BadGroup(f"{path}.logprobs: must be finite and at most 0, or null where not known")
    if any(len(span.version) > MAX_VERSION_CHARS for span in row.policy_versions):
        raise BadGroup(f"{path}.policy_versions: a version has more than {MAX_VERSION_CHARS} characters")
    if any(not 0 <= span.start <= span.end <= length for span in row.policy_versions):
        raise BadGroup(f"{path}.policy_versions: a span lies outside the row's {length} tokens")


def check_ids(token_ids: list[int], path: str) -> None:
    """Check that token ids fit the signed 32-bit integers that trainers hold them in.

    Raises:
        BadGroup: One does not.
    """
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) <= MAX_TOKEN_ID):
        raise BadGroup(f"{path}: ids must be from 0 to {MAX_TOKEN_ID}")
