"""Estimates over groups of rollouts, with confidence intervals.

The unit of resampling is the task item: rollouts of one item are alike, and counting them as independent
makes intervals too narrow.
"""

import random
from dataclasses import dataclass
from math import comb

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over items and its 95 % interval (percentile bootstrap over items)."""

    mean: float
    low: float
    high: float
    items: int
    """Items with at least one scored rollout."""

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_over_groups(rewards: list[list[float]]) -> Estimate:
    """Estimate the mean reward; each item counts once, items without a scored rollout not at all."""
    return _bootstrap([sum(group) / len(group) for group in rewards if group])


def pass_at_k(passes: list[list[bool]], k: int) -> Estimate:
    """Estimate the chance that one of k rollouts of an item passes.

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374): with n rollouts of which c pass,
    1 - C(n-c, k) / C(n, k). Items with fewer than k scored rollouts are left out.
    """
    return _bootstrap(
        [1 - comb(len(group) - sum(group), k) / comb(len(group), k) for group in passes if len(group) >= k]
    )


def _bootstrap(values: list[float]) -> Estimate:
    if not values:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    draws = random.Random(0)
    count = len(values)
    means = sorted(sum(draws.choices(values, k=count)) / count for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return Estimate(sum(values) / count, low, high, count)
