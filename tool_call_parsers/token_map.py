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

_WINDOW = 4
"""Tokens of context a fragment is decoded with: enough for a character of four bytes."""


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
        self._ids: list[int] = []
        self._starts: list[int] = []
        self._end = 0
        self._aligned = True

    def extend(self, text: str, ids: Sequence[int]) -> None:
        """Take the ids whose text ends ``text``; gives up for good where ids and text do not agree.

        Most ids are whole characters: then the text of the id alone, which a tokenizer can keep, will do.
        """
        for token_id in ids:
            self._ids.append(token_id)
            self._starts.append(self._end)
            piece = self._tokenizer.decode([token_id])
            if not piece or "\ufffd" in piece or not text.startswith(piece, self._end):
                piece = self._piece()
            if text.startswith(piece, self._end):
                self._end += len(piece)
            elif token_id not in self._added.values():
                self._aligned = False

    def _piece(self) -> str:
        """Return the text that the last id adds; empty while its character is incomplete."""
        before = self._tokenizer.decode(self._ids[-1 - _WINDOW : -1])
        after = self._tokenizer.decode(self._ids[-1 - _WINDOW :])
        whole = before.rstrip("�")
        return "" if after.endswith("�") else after[len(whole) :]

    def spelled_out(self, pos: int, marker: str) -> bool:
        """Tell whether ``marker`` at ``pos`` is ordinary text though the vocabulary has a token for it."""
        token_id = self._added.get(marker)
        if token_id is None or not self._aligned or not self._ids:
            return False
        index = bisect_right(self._starts, pos) - 1
        return index < 0 or self._starts[index] != pos or self._ids[index] != token_id

    def token_span(self, span: Span) -> Span | None:
        """Return the indices of the tokens that hold any character of ``span``; None where unknown."""
        if not self._aligned or not self._ids:
            return None
        start, end = span
        return max(0, bisect_right(self._starts, start) - 1), bisect_left(self._starts, end)
