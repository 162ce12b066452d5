"""Turns to rows: every sampled token once, on exactly the prefix it was sampled from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectories.errors import AlignmentError
from trajectories.messages import Message
from trajectories.rows import token_rows
from trajectories.tokens import TokenPrefix
from trajectories.turn import PolicySpan, SamplingParams, Turn


def turn(prompt_ids, output_ids, logprobs="given", **fields):
    if logprobs == "given" and output_ids is not None:
        logprobs = [-token_id / 8 for token_id in output_ids]
    return Turn(
        Message.assistant("x"),
        "stop",
        SamplingParams(),
        prompt_ids=prompt_ids,
        output_ids=output_ids,
        output_logprobs=logprobs if output_ids is not None else None,
        **fields,
    )


def test_a_turn_that_extends_the_last_continues_its_row():
    rows = token_rows([turn([1, 2], [3]), turn([1, 2, 3, 4], [5, 6])])
    assert len(rows) == 1
    assert rows[0].cause == "start"
    assert rows[0].token_ids == [1, 2, 3, 4, 5, 6]
    assert rows[0].loss_mask == [0, 0, 1, 0, 1, 1]
    assert rows[0].logprobs == [None, None, -3 / 8, None, -5 / 8, -6 / 8]
    assert rows[0].turn_index == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("prompt", [[1, 2, 4, 5], [1, 2], [9, 2, 3, 4], []])
def test_anything_else_starts_a_row(prompt):
    rows = token_rows([turn([1, 2], [3]), turn(prompt, [7])])
    assert [row.cause for row in rows] == ["start", "history_edit"]
    assert rows[1].token_ids == [*prompt, 7]
    assert rows[1].loss_mask == [0] * len(prompt) + [1]


def test_the_cause_is_the_one_the_session_named():
    rows = token_rows([turn([1], [2]), turn([5], [6], row_cause="template")])
    assert [row.cause for row in rows] == ["start", "template"]


def test_only_the_first_row_begins_for_the_start():
    rows = token_rows([turn([1], [2], row_cause="start"), turn([1], [3], row_cause="start")])
    assert [row.cause for row in rows] == ["start", "history_edit"]


def test_turns_without_ids_give_no_row():
    assert token_rows([turn(None, None)]) == []
    rows = token_rows([turn([1], [2]), turn(None, None), turn([1, 2, 3], [4])])
    assert [row.turn_index for row in rows] == [[0, 0, 2, 2]]


def test_missing_logprobs_are_none_and_never_a_number():
    assert token_rows([turn([1], [2, 3], logprobs=None)])[0].logprobs == [None, None, None]


def test_policy_spans_move_to_their_place_in_the_row():
    spans = [PolicySpan("a", 0, 1), PolicySpan("b", 1, 2)]
    rows = token_rows([turn([1], [2]), turn([1, 2, 3], [4, 5], policy_versions=spans)])
    assert rows[0].policy_versions == [PolicySpan("a", 3, 4), PolicySpan("b", 4, 5)]


@pytest.mark.parametrize("logprobs", [[], [-1.0], [-1.0] * 3])
def test_logprobs_of_another_length_raise(logprobs):
    with pytest.raises(AlignmentError, match="turn 0 has 2 output ids"):
        token_rows([turn([1], [2, 3], logprobs=logprobs)])


@pytest.mark.parametrize("span", [PolicySpan("a", 0, 3), PolicySpan("a", -1, 1), PolicySpan("a", 2, 1)])
def test_policy_spans_outside_the_output_raise(span):
    with pytest.raises(AlignmentError, match="policy spans"):
        token_rows([turn([1], [2, 3], policy_versions=[span])])


@st.composite
def rollouts(draw):
    """Turns that mostly extend one another, as lists or as views of one buffer."""
    ids = st.lists(st.integers(0, 3), max_size=4)
    turns = []
    history = TokenPrefix(draw(ids))
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 3)) == 0:
            history = TokenPrefix(draw(ids))
        prompt = history.append(draw(ids))
        output = draw(ids)
        turns.append(turn(prompt if draw(st.booleans()) else list(prompt), output))
        history = prompt.append(output)
    return turns


@given(rollouts())
def test_every_sampled_token_is_trained_once_on_the_prefix_it_was_sampled_from(turns):
    rows = token_rows(turns)
    trained = []
    for row in rows:
        count = len(row.token_ids)
        assert [len(row.loss_mask), len(row.logprobs), len(row.turn_index)] == [count] * 3
        for position, mask in enumerate(row.loss_mask):
            assert (row.logprobs[position] is not None) == bool(mask)
            if mask:
                index = row.turn_index[position]
                trained.append((index, tuple(row.token_ids[:position]), row.token_ids[position]))
    sampled = [
        (index, (*made.prompt_ids, *made.output_ids[:place]), token_id)
        for index, made in enumerate(turns)
        for place, token_id in enumerate(made.output_ids)
    ]
    assert trained == sampled


@given(rollouts())
def test_rows_break_only_where_the_prefix_does(turns):
    rows = []
    for turn in turns:
        prompt = list(turn.prompt_ids)
        known = [place for place, ids in enumerate(rows) if prompt[: len(ids)] == ids]
        place = known[-1] if known else len(rows)
        rows[place : place + 1] = [[*prompt, *turn.output_ids]]
    assert [row.token_ids for row in token_rows(turns)] == rows
