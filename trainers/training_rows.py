"""A group as the rows a GRPO or PPO trainer consumes.

Advantages are computed here, at the trainer's edge, and never stored: the record keeps raw rewards, so that
another estimator needs no new rollouts. A rollout that broke into several rows counts as one: its rows share
its weight, or conversations whose history was edited would train more than the others.
"""

import math
from dataclasses import dataclass

from trajectories.rows import TokenRow
from trajectories.trajectory import Group, StopReason


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One token row with what a policy-gradient loss needs of its rollout."""

    row: TokenRow
    group_id: str
    trajectory_id: str
    reward: float
    advantage: float
    weight: float
    """The rows of one rollout sum to 1."""
    stop_reason: StopReason


def training_rows(group: Group) -> list[TrainingRow]:
    """Return the rows of a group's scored rollouts; text-only rollouts have none.

    Unscored rollouts are left out of the baseline as well: a failure of the world is no evidence about the
    policy.
    """
    scored = [(t, t.reward) for t in group.trajectories if t.reward is not None]
    advantages = group_relative([reward for _, reward in scored])
    made: list[TrainingRow] = []
    for (trajectory, reward), advantage in zip(scored, advantages, strict=True):
        rows = trajectory.rows()
        made += [
            TrainingRow(
                row,
                group.group_id,
                trajectory.trajectory_id,
                reward,
                advantage,
                1 / len(rows),
                trajectory.stop_reason,
            )
            for row in rows
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
