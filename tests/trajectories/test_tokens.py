import copy
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectories.tokens import TokenPrefix, raw_json

ids = st.lists(st.integers(0, 9), max_size=5)


@st.composite
def trees(draw):
    """Prefixes grown from one another in any order, each with the list it must equal."""
    grown = [(TokenPrefix(start := draw(ids)), start)]
    for new in draw(st.lists(ids, max_size=8)):
        prefix, expected = draw(st.sampled_from(grown))
        if draw(st.booleans()):
            prefix = prefix.branch()
        grown.append((prefix.append(new), expected + new))
    return grown


@given(trees())
def test_every_prefix_stays_what_it_was_however_others_grow(grown):
    for prefix, expected in grown:
        assert prefix == expected
        assert list(prefix) == prefix.to_list() == expected
        assert len(prefix) == len(expected)
        assert hash(prefix) == hash(TokenPrefix(expected))


@given(trees(), st.slices(12))
def test_slices_and_indices_are_those_of_the_list(grown, part):
    for prefix, expected in grown:
        assert prefix[part] == expected[part]
        for index in range(-len(expected), len(expected)):
            assert prefix[index] == expected[index]
        with pytest.raises(IndexError):
            prefix[len(expected)]


@given(trees(), st.randoms())
def test_their_json_is_the_lists_in_whatever_order_it_is_asked_for(grown, random):
    for prefix, expected in random.choices(grown, k=20):
        assert prefix.to_json() == bytes(raw_json(expected)) == msgspec.json.encode(expected)


def test_growing_a_branch_leaves_no_trace_in_what_it_grew_from():
    kept = TokenPrefix(range(1000))
    branches = [kept.branch().append([index]) for index in range(3)]
    assert all(branch.shares_memory_with(kept) for branch in branches)
    assert len(pickle.dumps(kept)) == len(pickle.dumps(TokenPrefix(range(1000))))


@given(trees())
def test_starts_with_agrees_with_the_lists(grown):
    for longer, long in grown:
        for shorter, short in grown:
            assert longer.starts_with(shorter) == (long[: len(short)] == short)
            assert longer.starts_with(short) == (long[: len(short)] == short)
            assert (longer == shorter) == (long == short)
            assert not longer.shares_memory_with(shorter) or long[: len(short)] == short


@given(trees())
def test_pickles_and_copies_are_equal(grown):
    prefixes = [prefix for prefix, _ in grown]
    assert pickle.loads(pickle.dumps(prefixes)) == prefixes
    assert copy.deepcopy(prefixes) == prefixes


def test_growing_shares_one_buffer_and_forks_share_their_past():
    start = TokenPrefix(range(1000))
    grown = start.append([1])
    sibling = start.append([2])
    assert grown.shares_memory_with(start)
    assert sibling.shares_memory_with(start)
    assert not sibling.shares_memory_with(grown)
    assert sibling.append([3]).shares_memory_with(sibling)


def test_pickling_the_turns_of_a_session_keeps_one_buffer():
    turns = [TokenPrefix(range(10_000))]
    for _ in range(50):
        turns.append(turns[-1].append(range(10)))
    assert len(pickle.dumps(turns)) < 2 * len(pickle.dumps(turns[-1]))


def test_a_prefix_compares_with_lists_only():
    assert TokenPrefix([1]) != (1,)
    assert repr(TokenPrefix([1, 2])) == "TokenPrefix([1, 2])"
