"""Token ids that grow by appending and share their history.

The prompt of turn k+1 is the prompt and output of turn k plus a few new ids. Copying it for every turn makes
memory and time grow with the square of the conversation, so turns hold views of one append-only buffer, and
what grows out of a view that was already grown out of (a fork) keeps it as its base.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast, overload


class TokenPrefix(Sequence[int]):
    """The ids of a base, if there is one, and the first of a buffer after it. Immutable to its readers."""

    __slots__ = ("_base", "_base_length", "_buffer", "_length")

    def __init__(self, ids: Iterable[int] = (), *, _base: "TokenPrefix | None" = None):
        self._base = _base
        self._base_length = len(_base) if _base is not None else 0
        self._buffer = list(ids)
        self._length = self._base_length + len(self._buffer)

    def append(self, ids: Iterable[int]) -> "TokenPrefix":
        """Return this prefix followed by ``ids``, at the cost of the new ids alone."""
        if self._base_length + len(self._buffer) > self._length:
            return TokenPrefix(ids, _base=self)
        longer = TokenPrefix.__new__(TokenPrefix)
        longer._base, longer._base_length, longer._buffer = self._base, self._base_length, self._buffer
        longer._buffer.extend(ids)
        longer._length = longer._base_length + len(longer._buffer)
        return longer

    def to_list(self) -> list[int]:
        """Return the ids as a new list."""
        own = self._buffer[: self._length - self._base_length]
        return own if self._base is None else self._base.to_list() + own

    def starts_with(self, prefix: Sequence[int]) -> bool:
        """Tell whether ``prefix`` begins these ids; without looking at them where it shares its memory."""
        length = len(prefix)
        if length > self._length:
            return False
        return self.shares_memory_with(prefix) or self.to_list()[:length] == list(prefix)

    def shares_memory_with(self, prefix: Sequence[int]) -> bool:
        """Tell whether ``prefix`` is a view of what these ids begin with, no longer than they are."""
        owner: TokenPrefix | None = self
        while owner is not None:
            if isinstance(prefix, TokenPrefix) and prefix._buffer is owner._buffer:
                return len(prefix) <= len(owner)
            owner = owner._base
        return False

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, int):
            place = range(self._length)[index] - self._base_length
            if place < 0 and self._base is not None:
                return self._base[place + self._base_length]
            return self._buffer[place]
        start, stop, step = index.indices(self._length)
        if step > 0 and start >= self._base_length:
            return self._buffer[start - self._base_length : stop - self._base_length : step]
        return self.to_list()[index]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self.to_list())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenPrefix | list):
            return NotImplemented
        ids = cast("TokenPrefix | list[int]", other)
        return len(ids) == self._length and self.starts_with(ids)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TokenPrefix({self.to_list()!r})"
