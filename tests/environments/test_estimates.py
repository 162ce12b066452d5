"""Estimates: unbiased, by item, with intervals that hold the truth."""

import math
import random
from itertools import combinations

import pytest

from environments.estimates import mean_over_groups, pass_at_k


@pytest.mark.parametrize(
    ("passes", "k"), [([True, False, False], 1), ([True, True, False, False], 2), ([False] * 3, 2)]
)
def test_pass_at_k_is_the_share_of_draws_with_a_pass(passes, k):
    draws = list(combinations(passes, k))
    assert pass_at_k([passes], k).mean == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def test_items_with_too_few_rollouts_are_left_out():
    estimate = pass_at_k([[True, True], [False]], 2)
    assert (estimate.mean, estimate.items) == (1.0, 1)


def test_each_item_counts_once_however_many_rollouts_it_has():
    assert mean_over_groups([[1.0] * 8, [0.0], []]).mean == 0.5


def test_nothing_scored_has_no_mean():
    assert math.isnan(mean_over_groups([[], []]).mean)


def test_intervals_hold_the_truth_about_as_often_as_they_claim():
    draws = random.Random(1)
    hits = 0
    for _ in range(60):
        estimate = mean_over_groups([[float(draws.random() < 0.3)] for _ in range(60)])
        hits += estimate.low <= 0.3 <= estimate.high
    assert hits >= 51
