"""Keys and values of sequences the embedded engine has seen: a shared beginning is computed once.

A row belongs to one sequence and holds it without padding, position by position, so what a sequence computes
never depends on the length of its neighbours in a batch. Any row may serve any prompt that begins like it:
the next turn of its session goes on in place, siblings of a group copy the prompt they share.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

Tensor = Any
"""A ``torch.Tensor``; torch is imported only where the embedded engine runs."""

GROWTH_SLACK_TOKENS = 128


class KVRow:
    """Keys and values of the sequence ``ids``, for every layer."""

    def __init__(self, layers: int):
        self.ids: list[int] = []
        self._keys: list[Tensor] = [None] * layers
        self._values: list[Tensor] = [None] * layers

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values after those of ``ids``; return both from the beginning on.

        ``keys`` and ``values`` are [heads, new, head_dim]. They count only once `commit` names their ids, so
        a forward pass that fails half-way leaves the row as it was.
        """
        start = len(self.ids)
        end = start + keys.shape[1]
        if self._keys[layer] is None or self._keys[layer].shape[1] < end:
            self._keys[layer] = _grown(self._keys[layer], keys, start, end)
            self._values[layer] = _grown(self._values[layer], values, start, end)
        self._keys[layer][:, start:end] = keys
        self._values[layer][:, start:end] = values
        return self._keys[layer][:, :end], self._values[layer][:, :end]

    def commit(self, ids: Iterable[int]) -> None:
        """Say which ids the newest keys and values belong to, once every layer has them."""
        self.ids.extend(ids)

    def copy_prefix(self, length: int) -> "KVRow":
        """Return a new row with the first ``length`` ids of this one."""
        row = KVRow(len(self._keys))
        if length:
            row._keys = [_grown(kept, kept, length, length) for kept in self._keys]
            row._values = [_grown(kept, kept, length, length) for kept in self._values]
            row.ids = self.ids[:length]
        return row


def _grown(old: Tensor, like: Tensor, length: int, needed: int) -> Tensor:
    capacity = needed + needed // 4 + GROWTH_SLACK_TOKENS
    new = like.new_empty(like.shape[0], capacity, like.shape[2])
    if old is not None:
        new[:, :length] = old[:, :length]
    return new


class PrefixCache:
    """Rows no request is using, at most ``max_tokens`` ids together; the longest unused go first."""

    def __init__(self, layers: int, max_tokens: int):
        self._layers = layers
        self._max_tokens = max_tokens
        self._idle: OrderedDict[int, KVRow] = OrderedDict()
        self._tokens = 0

    def reusable(self, prompt_ids: Sequence[int], rows: Iterable[KVRow]) -> tuple[KVRow | None, int]:
        """Find the idle row, or one of ``rows``, that shares most with the prompt; return it and how much.

        The last id of a prompt is never counted: the logits after it have to be computed.
        """
        best, most = None, 0
        usable = prompt_ids[:-1]
        for row in (*self._idle.values(), *rows):
            shared = common_prefix(row.ids, usable)
            if shared > most:
                best, most = row, shared
        return best, most

    def acquire(self, row: KVRow | None, shared: int) -> KVRow:
        """Return a row that begins with the first ``shared`` ids of ``row`` and is the caller's alone."""
        if row is None:
            return KVRow(self._layers)
        if id(row) in self._idle and shared == len(row.ids):
            del self._idle[id(row)]
            self._tokens -= shared
            return row
        return row.copy_prefix(shared)

    def release(self, row: KVRow) -> None:
        """Keep ``row`` for prompts to come."""
        self._idle[id(row)] = row
        self._tokens += len(row.ids)
        while self._tokens > self._max_tokens:
            _, oldest = self._idle.popitem(last=False)
            self._tokens -= len(oldest.ids)

    def clear(self) -> None:
        """Forget every idle row; due when the weights change."""
        self._idle.clear()
        self._tokens = 0


def common_prefix(left: list[int], right: Sequence[int]) -> int:
    """Return how many ids both begin with; halving keeps the comparison inside the interpreter's C code."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
