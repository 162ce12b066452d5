"""Which rows serve which prompts, and how many are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.kv_cache import KVRow, PrefixCache, common_prefix

IDS = st.lists(st.integers(0, 2), max_size=12)


@given(IDS, IDS)
def test_the_common_prefix_is_the_longest_equal_beginning(left, right):
    length = common_prefix(left, right)

    assert left[:length] == right[:length]
    assert length == min(len(left), len(right)) or left[length] != right[length]


def filled(ids: list[int]) -> KVRow:
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    row = KVRow(layers=1)
    values = torch.tensor(ids, dtype=torch.float32).reshape(1, len(ids), 1)
    row.append(0, values, values + 100)
    row.commit(ids)
    return row


def contents(row: KVRow) -> tuple[list[float], list[float]]:
    keys, values = row.append(0, row._keys[0][:, :0], row._values[0][:, :0])
    return keys.flatten().tolist(), values.flatten().tolist()


def test_a_row_that_is_wholly_a_beginning_goes_on_in_place():
    cache = PrefixCache(layers=1, max_tokens=100)
    row = filled([1, 2, 3])
    cache.release(row)

    found, shared = cache.reusable([1, 2, 3, 4], [])

    assert (found, shared) == (row, 3)
    assert cache.acquire(found, shared) is row
    assert cache.reusable([1, 2, 3, 4], []) == (None, 0)


def test_a_row_in_use_or_with_another_ending_is_copied():
    cache = PrefixCache(layers=1, max_tokens=100)
    idle, running = filled([1, 2, 9, 9]), filled([1, 2, 3])
    cache.release(idle)

    from_running = cache.acquire(*cache.reusable([1, 2, 3, 4], [running]))
    from_idle = cache.acquire(*cache.reusable([1, 2, 9, 8], []))

    assert from_running is not running
    assert from_running.ids == [1, 2, 3]
    assert contents(from_running) == ([1, 2, 3], [101, 102, 103])
    assert from_idle.ids == [1, 2, 9]
    assert idle.ids == [1, 2, 9, 9]


def test_the_last_prompt_id_is_always_computed_anew():
    cache = PrefixCache(layers=1, max_tokens=100)
    cache.release(filled([1, 2, 3]))

    assert cache.reusable([1, 2, 3], [])[1] == 2


def test_a_pass_that_fails_before_its_end_leaves_the_row_as_it_was():
    row = filled([1, 2])
    row.append(0, row._keys[0][:, :1] * 0, row._values[0][:, :1] * 0)

    assert row.ids == [1, 2]
    assert contents(row) == ([1, 2], [101, 102])


def test_the_longest_unused_rows_are_forgotten_first():
    cache = PrefixCache(layers=1, max_tokens=6)
    for first in (1, 2, 3):
        cache.release(filled([first, 0, 0]))

    assert cache.reusable([1, 0, 0, 0], []) == (None, 0)
    assert cache.reusable([3, 0, 0, 0], [])[1] == 3
    cache.clear()
    assert cache.reusable([3, 0, 0, 0], []) == (None, 0)
