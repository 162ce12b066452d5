"""Model text that grows, and the waits a parser can put on it.

A parser is one generator over a ``Source``. It suspends (``yield``) where the text at hand cannot decide,
and goes on when ``feed`` brought more or ``finish`` said that nothing follows. The position in the code is
the state of the machine, so a complete parse and a streamed one run the same lines and cannot differ. A
suspended wait remembers how far it has looked: each character is looked at once. It holds no match, which
would hold the text: a text that is held elsewhere is copied whole when it grows.
"""

import re
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from tool_call_parsers.token_map import TokenMap
from trajectories.turn import FinishReason

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that may suspend until there is more text."""

_BLANK = re.compile(r"[ \t\r\n]*")


def blank_end(text: str, pos: int) -> int:
    """Return the first position at or after ``pos`` that holds no blank."""
    return run_end(_BLANK, text, pos)


def run_end(pattern: re.Pattern[str], text: str, pos: int) -> int:
    """Return where the run of characters that begins at ``pos`` ends."""
    found = pattern.match(text, pos)
    return found.end() if found else pos


@lru_cache(maxsize=4096)
def any_of(*literals: str) -> "Markers":
    """Return the set of these literal markers."""
    return Markers(literals)


class Markers:
    """A set of literal markers, with the tails of a text that may still become one of them."""

    __slots__ = ("_first", "_longest", "_prefixes", "literals", "pattern")

    def __init__(self, literals: Iterable[str]):
        self.literals = tuple(sorted(set(literals), key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self.literals)))
        self._prefixes = frozenset(
            literal[:size] for literal in self.literals for size in range(1, len(literal))
        )
        self._longest = len(self.literals[0])
        self._first = re.compile(
            "[" + "".join(map(re.escape, {literal[0] for literal in self.literals})) + "]"
        )

    def held_from(self, text: str, pos: int) -> int:
        """Return where the longest tail begins that is the beginning of a marker; the end where none is."""
        size = len(text)
        start = max(pos, size - self._longest + 1)
        while found := self._first.search(text, start):
            start = found.start()
            if text[start:] in self._prefixes:
                return start
            start += 1
        return max(size, pos)


class Source:
    """The text of one completion so far."""

    __slots__ = (
        "_absent",
        "bad_json",
        "finish_reason",
        "guessed",
        "memo",
        "part_end",
        "text",
        "tokens",
        "unclosed",
    )

    def __init__(self, tokens: TokenMap | None = None):
        self.text = ""
        self.finish_reason: FinishReason | None = None
        self.tokens = tokens
        self.memo: dict[Hashable, Any] = {}
        """What looking ahead has shown, kept by who looked: so many bad blocks in a row stay linear."""
        self.part_end = 0
        """Where the last block or think block ended."""
        self.bad_json = 0
        """How many values that are no JSON, or not yet whole, were tried so far."""
        self.guessed = False
        """Whether it was tried if the text's last brace ends a value."""
        self.unclosed: dict[int, Any] = {}
        """The brackets that no JSON closed when it was last read, each with what was wrong."""
        self._absent: dict[Markers, int] = {}
        """From where on the text, now that it has ended, surely has none of some markers."""

    def append(self, delta: str, token_ids: Sequence[int] | None = None) -> None:
        """Add text at the end, in time of the new text alone, with the ids it was decoded from."""
        # CPython grows a string in place while a local name holds its only reference.
        text, self.text = self.text, ""
        text += delta
        self.text = text
        if token_ids is not None and self.tokens:
            self.tokens.extend(text, token_ids)

    @property
    def ended(self) -> bool:
        """Whether no more text follows."""
        return self.finish_reason is not None

    @property
    def cut(self) -> bool:
        """Whether the text ended because the token limit was reached."""
        return self.finish_reason == "length"

    def search(self, markers: Markers, pos: int) -> re.Match[str] | None:
        """Return the first marker at or after ``pos``, passing over those that the model only spelled out."""
        if self._absent and pos >= self._absent.get(markers, pos + 1):
            return None
        found = markers.pattern.search(self.text, pos)
        while found and self.tokens and self.tokens.spelled_out(found.start(), found.group()):
            found = markers.pattern.search(self.text, found.start() + 1)
        if found is None and self.finish_reason is not None:
            self._absent[markers] = pos
        return found

    def until(
        self, markers: Markers, pos: int, passed: Callable[[int], None] | None = None
    ) -> Steps[re.Match[str] | None]:
        """Wait for a marker; None where the text ends without one.

        Args:
            markers: What to look for.
            pos: Where to begin.
            passed: Called, before each suspension, with the position up to which there surely is no marker.
        """
        while True:
            if found := self.search(markers, pos):
                return found
            if self.ended:
                return None
            pos = markers.held_from(self.text, pos)
            if passed:
                passed(pos)
            yield

    def at(self, markers: Markers, pos: int) -> Steps[str | None]:
        """Wait until it is clear which marker, if any, stands exactly at ``pos``."""
        while True:
            if found := markers.pattern.match(self.text, pos):
                spelled = self.tokens and self.tokens.spelled_out(pos, found.group())
                return None if spelled else found.group()
            if self.ended or markers.held_from(self.text, pos) != pos:
                return None
            yield

    def past(self, pattern: re.Pattern[str], pos: int) -> Steps[int]:
        """Wait for the end of a run of characters; the end of the text where nothing else follows."""
        while True:
            pos = run_end(pattern, self.text, pos)
            if pos < len(self.text) or self.ended:
                return pos
            yield

    def past_blank(self, pos: int) -> Steps[int]:
        """Wait for the next character that is not blank; the end of the text where only blanks follow."""
        return self.past(_BLANK, pos)
