"""The split of a row into prompt and response loses, adds and moves nothing."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.rows import token_row
from trainers.prompt_response import split


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_split_row_is_the_row(seed, outputs):
    row = token_row(seed, outputs=outputs)
    part = split(row)
    assert part.prompt_ids + part.response_ids == row.token_ids
    start = len(part.prompt_ids)
    assert part.response_mask == row.loss_mask[start:] and part.response_mask[0] == 1
    assert part.response_logprobs == row.logprobs[start:]
    assert not any(row.loss_mask[:start])
    filled = part.filled_logprobs()
    given_or_zero = zip(filled, row.logprobs[start:], row.loss_mask[start:], strict=True)
    assert all(value == (logprob if sampled else 0) for value, logprob, sampled in given_or_zero)


@given(st.integers(0, 10_000), st.data())
def test_with_one_sampled_logprob_missing_there_are_none(seed, data):
    row = token_row(seed)
    sampled = [index for index, mask in enumerate(row.loss_mask) if mask]
    missing = data.draw(st.sampled_from(sampled))
    part = split(replace(row, logprobs=[None if i == missing else v for i, v in enumerate(row.logprobs)]))
    assert part.response_logprobs is None and part.filled_logprobs() is None
