"""What the formats share that write the name in a head of their own and the arguments as one JSON object."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from tool_call_parsers.calls import call_from_arguments
from tool_call_parsers.findings import Block, Broken, Item
from tool_call_parsers.json_blocks import JsonBlockFormat
from tool_call_parsers.json_body import JsonFault, read_json
from tool_call_parsers.source import Source, Steps
from trajectories.messages import Span


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the arguments, and where it ends."""

    name: str
    end: int
    native_id: str | None = None


class MarkedJsonFormat(JsonBlockFormat):
    """A block of a head with the name and a JSON object."""

    section_openers: tuple[str, ...] = ()
    """Those of ``openers`` that begin a section of blocks."""

    @abstractmethod
    def head(self, src: Source, pos: int) -> Steps[Head | Broken]:
        """Read what stands between the opening marker and the arguments."""

    def after_arguments(self, src: Source, pos: int) -> Steps[int]:
        """Pass over what the format writes between the arguments and the closing marker."""
        yield from ()
        return pos

    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""
        return call_from_arguments(head["name"], body, span)

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read one call, or the opening of a section."""
        free = self.stands_free(src, start)
        pos = yield from src.past_blank(start + len(opener))
        if opener in self.section_openers:
            if (yield from src.at(self.after_body, pos)) in self.openers:
                return Block(pos, [])
            return self.broken(src, f"After {opener} comes no call.", pos) if free else None
        head = yield from self.head(src, pos)
        if isinstance(head, Broken):
            return head if free else None
        pos = yield from src.past_blank(head.end)
        if src.text[pos : pos + 1] != "{":
            if not free and src.text[pos : pos + 1] not in ("", "[", '"'):
                return None
            return self.broken(src, f"The arguments of {head.name!r} are not a JSON object.", pos)
        body = yield from read_json(src, pos)
        if isinstance(body, JsonFault):
            kind = "unclosed" if body.ended else "invalid_json"
            return Broken(kind, f"{body.message} {self.advice}", body.resume)
        body_end = yield from self.after_arguments(src, body.end)
        end = yield from self.close(src, body_end)
        if end is None:
            pos = yield from src.past_blank(body_end)
            return self.broken(src, f"After the arguments of {head.name!r} comes no {self.closers[0]}.", pos)
        return Block(end, [call_from_arguments(head.name, body.value, (start, end), head.native_id)])
