"""What the formats share that write each call as a block around one JSON object."""

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from tool_call_parsers.blocks import BlockFormat
from tool_call_parsers.findings import Block, Item
from tool_call_parsers.json_body import json_at_hand
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source
from trajectories.messages import Span


class JsonRow:
    """Blocks in their ordinary form with nothing but blanks between them.

    Args:
        head: Pattern of what stands before the object; group 1 is where the block begins.
        tail: Pattern of what stands after it.
        call: Makes the call of a block from the match of its head, its object and its span.
    """

    def __init__(self, head: str, tail: str, call: Callable[[re.Match[str], Any, Span], Item]):
        self._head = re.compile(rf"[ \t\r\n]*+{head}[ \t\r\n]*+(?=\{{)")
        self._tail = re.compile(rf"[ \t\r\n]*+{tail}" if tail else "")
        self._call = call

    def at_hand(self, src: Source, start: int) -> Block | None:
        """Read the blocks from ``start`` on that stand there whole; None where not even one does."""
        text, end = src.text, start
        items: list[Item] = []
        while head := self._head.match(text, end):
            body = json_at_hand(src, head.end())
            if body is None:
                break
            tail = self._tail.match(text, body[1])
            if tail is None:
                break
            end = tail.end()
            items.append(self._call(head, body[0], (head.start(1), end)))
        return Block(end, items) if items else None


class JsonBlockFormat(BlockFormat):
    """A block of a head, a JSON object and a closing marker."""

    head_pattern: str
    tail_pattern: str

    def __init__(self, tools: ToolSchemas):
        super().__init__(tools)
        self._row = JsonRow(self.head_pattern, self.tail_pattern, self.ordinary)

    @abstractmethod
    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""

    def at_hand(self, src: Source, start: int, opener: str) -> Block | None:
        """Read a row of blocks."""
        return self._row.at_hand(src, start)
