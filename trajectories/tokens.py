"""Token ids that grow by appending and share their history.

The prompt of turn k+1 is the prompt and output of turn k plus a few new ids. Copying it for every turn makes
memory and time grow with the square of the conversation, so turns hold views of one append-only buffer, and
what grows out of a view that was already grown out of (a fork) keeps it as its base. So does their JSON text:
a request holds the whole prompt, but only its new ids are written anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast, overload

import msgspec


class _Buffer:
    """Ids that are only ever appended to, and their JSON text as far as it was asked for."""

    __slots__ = ("_ends", "_text", "ids")

    def __init__(self, ids: Iterable[int]):
        self.ids = list(ids)
        self._text = bytearray()
        self._ends = {0: 0}
        """By a number of ids, where their text ends."""

    def text(self, count: int) -> bytes:
        """Return the first ids as JSON without its brackets."""
        if count not in self._ends:
            told = next(reversed(self._ends))
            if count < told:
                return msgspec.json.encode(self.ids[:count])[1:-1]
            self._text += b"," * (told > 0) + msgspec.json.encode(self.ids[told:count])[1:-1]
            self._ends[count] = len(self._text)
        return bytes(memoryview(self._text)[: self._ends[count]])

    def __reduce__(self) -> tuple[Any, ...]:
        return _Buffer, (self.ids,)


class TokenPrefix(Sequence[int]):
    """The ids of a base, if there is one, and the first of a buffer after it. Immutable to its readers."""

    __slots__ = ("_base", "_base_length", "_buffer", "_length")

    def __init__(self, ids: Iterable[int] = (), *, _base: "TokenPrefix | None" = None):
        self._base = _base
        self._base_length = len(_base) if _base is not None else 0
        self._buffer = _Buffer(ids)
        self._length = self._base_length + len(self._buffer.ids)

    def append(self, ids: Iterable[int]) -> "TokenPrefix":
        """Return this prefix followed by ``ids``, at the cost of the new ids alone."""
        if self._base_length + len(self._buffer.ids) > self._length:
            return TokenPrefix(ids, _base=self)
        longer = TokenPrefix.__new__(TokenPrefix)
        longer._base, longer._base_length, longer._buffer = self._base, self._base_length, self._buffer
        longer._buffer.ids.extend(ids)
        longer._length = longer._base_length + len(longer._buffer.ids)
        return longer

    def branch(self) -> "TokenPrefix":
        """Return equal ids whose growth leaves no trace in this buffer, so that it can be kept and shared."""
        return TokenPrefix(_base=self)

    def to_list(self) -> list[int]:
        """Return the ids as a new list."""
        own = self._buffer.ids[: self._length - self._base_length]
        return own if self._base is None else self._base.to_list() + own

    def to_json(self) -> bytes:
        """Return the ids as a JSON array; asked for again and again, it costs little but the new ids."""
        return b"[" + b",".join(filter(None, self._texts())) + b"]"

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

    def _texts(self) -> Iterator[bytes]:
        if self._base is not None:
            yield from self._base._texts()
        yield self._buffer.text(self._length - self._base_length)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, int):
            place = range(self._length)[index] - self._base_length
            if place < 0 and self._base is not None:
                return self._base[place + self._base_length]
            return self._buffer.ids[place]
        start, stop, step = index.indices(self._length)
        stop = max(start, stop) if step > 0 else stop  # an empty slice must not count from the buffer's end
        if step > 0 and start >= self._base_length:
            return self._buffer.ids[start - self._base_length : stop - self._base_length : step]
        if step > 0 and stop <= self._base_length and self._base is not None:
            return self._base[start:stop:step]
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


def raw_json(ids: Sequence[int]) -> msgspec.Raw:
    """Return ids as JSON that msgspec puts into a message as it is."""
    return msgspec.Raw(ids.to_json() if isinstance(ids, TokenPrefix) else msgspec.json.encode(list(ids)))
