"""Choosing a batch: exact size, oldest first, minimum shares."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.api.batching import choose
from rollouts.api.group_store import QueuedGroup


def queued(*sizes: int, envs: tuple[int, ...] | None = None) -> list[QueuedGroup]:
    envs = envs or (0,) * len(sizes)
    return [
        QueuedGroup(seq, env, "native", size, 0, 1)
        for seq, (size, env) in enumerate(zip(sizes, envs, strict=True))
    ]


def chosen(groups, target, minimums=None):
    batch = choose(groups, target, lambda group: group.rollouts, minimums or {})
    return None if batch is None else [group.seq for group in batch]


def test_groups_of_one_size_go_out_in_order():
    assert chosen(queued(4, 4, 4), 8) == [0, 1]


def test_too_few_make_no_batch():
    assert chosen(queued(4, 2), 8) is None


def test_a_group_that_does_not_fit_waits_and_does_not_block():
    assert chosen(queued(3, 4, 4), 8) == [1, 2]


def test_a_group_larger_than_the_batch_is_passed_over():
    assert chosen(queued(5, 2, 4), 4) == [2]


def test_of_several_ways_the_one_with_the_oldest_groups_is_taken():
    assert chosen(queued(3, 4, 4, 5), 8) == [1, 2]
    assert chosen(queued(3, 4, 5, 4), 8) == [0, 2]


def test_minimum_shares_come_before_age():
    groups = queued(2, 2, 2, 2, envs=(0, 0, 0, 1))
    assert chosen(groups, 4, {1: 0.5}) == [0, 3]


def test_a_minimum_that_is_not_there_yet_holds_the_batch_back():
    assert chosen(queued(2, 2, 2), 4, {1: 0.5}) is None


def test_minimums_that_sum_to_more_than_one_are_scaled_down():
    groups = queued(1, 1, 1, 1, envs=(0, 0, 1, 1))
    assert chosen(groups, 2, {0: 1.0, 1: 1.0}) == [0, 2]


@given(st.lists(st.integers(1, 6), max_size=9), st.integers(1, 16))
def test_a_batch_is_found_exactly_where_one_exists(sizes, target):
    groups = queued(*sizes)
    batch = chosen(groups, target)
    possible = any(sum(c) == target for n in range(len(sizes) + 1) for c in combinations(sizes, n))
    assert (batch is not None) == possible
    if batch is not None:
        assert sum(sizes[seq] for seq in batch) == target
        assert batch == sorted(set(batch))
        shorter = sizes[: batch[-1]]
        assert not any(sum(c) == target for n in range(len(shorter) + 1) for c in combinations(shorter, n))


@pytest.mark.parametrize("target", [1, 64, 1000])
def test_choosing_from_a_long_queue_of_ones_takes_its_head(target):
    assert chosen(queued(*[1] * 5000), target) == list(range(target))
