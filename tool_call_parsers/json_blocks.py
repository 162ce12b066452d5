"""What the formats share that write each call as a block around one JSON object."""

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.findings import Block, Item
from tool_call_parsers.json_body import json_at_hand
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source
from trajectories.messages import Span

_BLANK = r"[ \t\r\n]*+"


class JsonRow:
    """Blocks in their ordinary form with nothing but blanks between them.

    Args:
        head: Pattern of what stands before the object; its group ``begin`` is where the block begins.
        tail: Pattern of what stands after it.
        section_tail: Pattern of what may end a section of blocks.
        call: Makes the call of a block from the match of its head, its object and its span.
    """

    def __init__(
        self, head: str, tail: str, section_tail: str, call: Callable[[re.Match[str], Any, Span], Item]
    ):
        head = rf"{_BLANK}{head}{_BLANK}(?=\{{)"
        tail = rf"{_BLANK}{tail}" if tail else ""
        section_tail = rf"(?:{_BLANK}(?:{section_tail}))?" if section_tail else ""
        self._head = re.compile(head)
        self._between = re.compile(rf"{tail}(?P<end>){section_tail}(?:{head})?")
        self._call = call

    def at_hand(self, src: Source, start: int) -> Block | None:
        """Read the blocks from ``start`` on that stand there whole; None where not even one does."""
        text, end = src.text, start
        items: list[Item] = []
        head = self._head.match(text, start)
        while head and (body := json_at_hand(src, head.end())):
            between = self._between.match(text, body[1])
            if between is None:
                break
            end = between.start("end")
            items.append(self._call(head, body[0], (head.start("begin"), end)))
            if between.start("begin") < 0:
                end = between.end()
                break
            head = between
        return Block(end, items) if items else None


class JsonBlockFormat(BlockFormat):
    """A block of a head, a JSON object and a closing marker."""

    head_pattern: str
    tail_pattern: str

    def __init__(self, tools: ToolSchemas):
        super().__init__(tools)
        section_tail = "|".join(map(re.escape, self.section_closers))
        self._row = JsonRow(self.head_pattern, self.tail_pattern, section_tail, self.ordinary)

    @abstractmethod
    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""

    def at_hand(self, src: Source, start: int, opener: str) -> Block | None:
        """Read a row of blocks."""
        return self._row.at_hand(src, start)
