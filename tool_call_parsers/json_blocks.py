"""What the formats share that write each call as a block around one JSON object."""

import re
from abc import abstractmethod
from typing import Any

from tool_call_parsers.blocks import BlockFormat
from tool_call_parsers.findings import Block, Item
from tool_call_parsers.json_body import json_at_hand
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source
from trajectories.messages import Span


class JsonBlockFormat(BlockFormat):
    """A block of a head, a JSON object and a closing marker."""

    head_pattern: str
    """What stands before the object in the ordinary form; group 1 is where the block begins."""
    tail_pattern: str
    """What stands after it."""

    def __init__(self, tools: ToolSchemas):
        super().__init__(tools)
        self._head = re.compile(rf"[ \t\r\n]*+{self.head_pattern}[ \t\r\n]*+(?=\{{)")
        self._tail = re.compile(rf"[ \t\r\n]*+{self.tail_pattern}" if self.tail_pattern else "")

    @abstractmethod
    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""

    def at_hand(self, src: Source, start: int, opener: str) -> Block | None:
        """Read a row of blocks with nothing but blanks between them."""
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
            items.append(self.ordinary(head, body[0], (head.start(1), end)))
        return Block(end, items) if items else None
