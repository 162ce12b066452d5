"""A group as the rows a GRPO or PPO trainer consumes.

Advantages are computed here, at the trainer's edge, and never stored: the record keeps raw rewards, so that
another estimator needs no new rollouts. A rollout that broke into several rows counts as one: its rows share
its weight by their sampled tokens, so that each token counts as if the rollout had stayed whole. Otherwise
conversations whose history was edited would train more than the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.api.scored_group import ScoredRollout
from trajectories.rows import TokenRow
from trajectories.trajectory import StopReason


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One token row with what a policy-gradient loss needs of its rollout."""

    row: TokenRow
    group_id: str
    trajectory_id: str
    reward: float
    advantage: float
    weight: float
    """The row's share of its rollout's sampled tokens; the rows of one rollout sum to 1."""
    stop_reason: StopReason | None


def rows_of_scored(group_id: str, rollouts: Sequence[ScoredRollout]) -> list[TrainingRow]:
    """Return the rows of a group that hold a sampled token, each with its rollout's advantage and weight.

    Rollouts that the world failed are not among ``rollouts``, and one without a sampled token has no part in
    the baseline either: it is no act of the policy.
    """
    acted = [rollout for rollout in rollouts if any(any(row.loss_mask) for row in rollout.rows)]
    advantages = group_relative([rollout.reward for rollout in acted])
    made: list[TrainingRow] = []
    for rollout, advantage in zip(acted, advantages, strict=True):
        sampled = sum(sum(row.loss_mask) for row in rollout.rows)
        made += [
            TrainingRow(
                row,
                group_id,
                rollout.trajectory_id,
                rollout.reward,
                advantage,
                sum(row.loss_mask) / sampled,
                rollout.stop_reason,
            )
            for row in rollout.rows
            if any(row.loss_mask)
        ]
    return made


def group_relative(rewards: list[float]) -> list[float]:
    """Return each reward's distance from the group's mean, in standard deviations.

    GRPO's estimator (Shao et al. 2024, arXiv:2402.03300), with the population's standard deviation. All zero
    where the rewards are equal: such a group teaches nothing.
    """
    if not rewards:
        return []
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    if deviation < 1e-9:
        return [0.0] * len(rewards)
    return [(reward - mean) / deviation for reward in rewards]
