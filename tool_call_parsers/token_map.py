"""Where each sampled token stands in the completion text.

Spans in characters become spans in token indices, and a marker sampled as its own token is told from the
same characters spelled out by ordinary ones. Decoding ids one by one and adding up lengths would be wrong
where a character spans several tokens or a tokenizer drops a leading space, so each piece is checked against
the text.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol

from trajectories.messages import Span

_MAX_PENDING = 16
"""Most ids that may wait for their character to be complete; more means that ids and text do not agree."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer; those of ``transformers`` have it."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        ...

    def get_added_vocab(self) -> dict[str, int]:
        """Return the tokens added to the vocabulary by their text."""
        ...


class TokenMap:
    """Start positions of the tokens of one completion, extended as text and ids arrive."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._added = tokenizer.get_added_vocab()
        self._added_ids = frozenset(self._added.values())
        self._ids: list[int] = []
        self._starts: list[int] = []
        self._context: list[int] = []
        """The ids of the last piece: what follows is decoded after it, as a tokenizer may look back."""
        self._context_text = ""
        self._pending: list[int] = []
        self._end = 0
        self._aligned = True

    def extend(self, text: str, ids: Sequence[int]) -> None:
        """Take the ids whose text ends ``text``; gives up for good where ids and text do not agree."""
        for token_id in ids:
            self._ids.append(token_id)
            self._starts.append(self._end)
            if not self._pending and self._settled_alone(token_id, text):
                continue
            self._pending.append(token_id)
            piece = self._tokenizer.decode([*self._context, *self._pending])[len(self._context_text) :]
            if text.startswith(piece, self._end):
                self._settle(len(piece))
            elif token_id in self._added_ids and len(self._pending) == 1:
                self._settle(0)
            elif len(self._pending) > _MAX_PENDING:
                self._aligned = False

    def _settled_alone(self, token_id: int, text: str) -> bool:
        """Take an id that reads the same alone, as most do; a tokenizer can keep the texts of single ids."""
        alone = self._tokenizer.decode([token_id])
        if not alone or "\ufffd" in alone or not text.startswith(alone, self._end):
            return False
        self._end += len(alone)
        self._context, self._context_text = [token_id], alone
        return True

    def _settle(self, size: int) -> None:
        self._end += size
        self._context, self._pending = self._pending, []
        self._context_text = self._tokenizer.decode(self._context)

    def spelled_out(self, pos: int, marker: str) -> bool:
        """Tell whether ``marker`` at ``pos`` is ordinary text though the vocabulary has a token for it."""
        token_id = self._added.get(marker)
        if token_id is None or not self._aligned or pos + len(marker) > self._end:
            return False
        index = bisect_right(self._starts, pos) - 1
        return index < 0 or self._starts[index] != pos or self._ids[index] != token_id

    def token_span(self, span: Span) -> Span | None:
        """Return the indices of the tokens that hold any character of ``span``; None where unknown."""
        start, end = span
        if not self._aligned or end > self._end:
            return None
        first = bisect_left(self._starts, start)
        if first == len(self._starts) or self._starts[first] > start:
            first -= 1
        return first, bisect_left(self._starts, end)
