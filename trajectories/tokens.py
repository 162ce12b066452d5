"""Token ids that grow by appending and share their history.

The prompt of turn k+1 is the prompt and output of turn k plus a few new ids. Copying it for every turn makes
memory and time grow with the square of the conversation, so turns hold views of one append-only buffer.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast, overload


class TokenPrefix(Sequence[int]):
    """The first ``length`` ids of a buffer that is only ever appended to. Immutable to its readers."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, ids: Iterable[int] = ()):
        self._buffer = list(ids)
        self._length = len(self._buffer)

    def append(self, ids: Iterable[int]) -> "TokenPrefix":
        """Return this prefix followed by ``ids``; costs the new ids alone, or one copy after a fork."""
        owner = self if len(self._buffer) == self._length else TokenPrefix(self.to_list())
        longer = TokenPrefix.__new__(TokenPrefix)
        longer._buffer = owner._buffer
        longer._buffer.extend(ids)
        longer._length = len(longer._buffer)
        return longer

    def to_list(self) -> list[int]:
        """Return the ids as a new list."""
        return self._buffer[: self._length]

    def starts_with(self, prefix: Sequence[int]) -> bool:
        """Tell whether ``prefix`` begins these ids; constant time where both view the same buffer."""
        if len(prefix) > self._length:
            return False
        if isinstance(prefix, TokenPrefix):
            return prefix._buffer is self._buffer or self._buffer[: len(prefix)] == prefix.to_list()
        return self._buffer[: len(prefix)] == list(prefix)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, int):
            return self._buffer[range(self._length)[index]]
        start, stop, step = index.indices(self._length)
        if step < 0:
            return [self._buffer[i] for i in range(start, stop, step)]
        return self._buffer[start:stop:step]

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
