"""Training rows: advantages within the group, rollouts weigh the same, the world's failures are left out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.api.scored_group import ScoredRollout, scored_rollout
from tests.builders import trajectory_of
from trainers.training_rows import group_relative, rows_of_scored
from trajectories.messages import Message
from trajectories.rows import TokenRow
from trajectories.trajectory import Failure, StopReason
from trajectories.turn import SamplingParams, Turn


def turn(prompt_ids, output_ids):
    message = Message.assistant("x")
    return Turn(
        message,
        "stop",
        SamplingParams(),
        prompt_ids=prompt_ids,
        output_ids=output_ids,
        output_logprobs=[-1.0] * len(output_ids),
    )


def rollout(name, reward, turns, **changes):
    return replace(
        trajectory_of([Message.user("go")], trajectory_id=name, reward=reward, **changes), turns=turns
    )


WHOLE = [turn([1, 2], [3]), turn([1, 2, 3, 4], [5])]
BROKEN = [turn([1, 2], [3]), turn([9], [5])]


def training_rows(*rollouts):
    return rows_of_scored("g", [scored for each in rollouts if (scored := scored_rollout(each))])


def test_a_group_becomes_rows_with_advantages_and_equal_weight_for_each_rollout():
    rows = training_rows(rollout("a", 1.0, WHOLE), rollout("b", 0.0, BROKEN))
    assert [(r.trajectory_id, r.advantage, r.weight) for r in rows] == [
        ("a", 1.0, 1.0),
        ("b", -1.0, 0.5),
        ("b", -1.0, 0.5),
    ]
    assert rows[0].row.token_ids == [1, 2, 3, 4, 5]
    assert rows[0].row.loss_mask == [0, 0, 1, 0, 1]


def test_a_failure_of_the_world_is_neither_trained_nor_part_of_the_baseline():
    failure = Failure("sandbox", "SandboxDied", "gone", True)
    failed = rollout("c", None, WHOLE, stop_reason=StopReason.ERROR, error=failure)
    scored = [rollout("a", 1.0, WHOLE), rollout("b", 0.0, WHOLE)]
    assert training_rows(*scored, failed) == training_rows(*scored)


@pytest.mark.parametrize("turns", [[], [turn([1, 2], [])]], ids=["no turn", "an empty turn"])
def test_a_rollout_without_a_sampled_token_has_no_part_in_the_baseline(turns):
    silent = rollout("c", 0.0, turns, stop_reason=StopReason.CONTEXT_OVERFLOW)
    acted = [rollout("a", 1.0, WHOLE), rollout("b", 0.0, WHOLE)]
    assert training_rows(*acted, silent) == training_rows(*acted)
    masked = ScoredRollout("d", 0.0, [TokenRow("start", [1], [0], [None], [0])])  # as a foreign push may be
    scored = [scored for each in acted if (scored := scored_rollout(each))]
    assert rows_of_scored("g", [*scored, masked]) == rows_of_scored("g", scored)


def test_equal_rewards_teach_nothing():
    assert group_relative([0.3, 0.3, 0.3]) == [0.0, 0.0, 0.0]
    assert group_relative([]) == []


@given(st.lists(st.integers(-100, 100).map(float), min_size=2, max_size=16).filter(lambda r: max(r) > min(r)))
def test_advantages_have_mean_zero_and_deviation_one_in_the_order_of_the_rewards(rewards):
    advantages = group_relative(rewards)
    assert sum(advantages) == pytest.approx(0, abs=1e-6)
    assert sum(a * a for a in advantages) / len(advantages) == pytest.approx(1)
    assert all(
        (a < b) == (r < s)
        for a, r in zip(advantages, rewards, strict=True)
        for b, s in zip(advantages, rewards, strict=True)
    )
