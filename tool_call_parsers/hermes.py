"""Hermes, Qwen 2.5 and Qwen 3, LongCat: one JSON object between ``<tool_call>`` and ``</tool_call>``."""

import re
from collections.abc import Sequence
from typing import Any

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.calls import call_from_json
from tool_call_parsers.findings import Block, Broken, Item
from tool_call_parsers.json_blocks import JsonBlockFormat
from tool_call_parsers.json_body import JsonFault, read_json
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories import hermes_codec
from trajectories.messages import Span, ToolCall, ToolSchema


class HermesFormat(JsonBlockFormat):
    """The block syntax, for any name of the tag."""

    ends = ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>")

    def __init__(self, tools: ToolSchemas, tag: str = "tool_call"):
        self.openers = (f"<{tag}>",)
        self.closers = (f"</{tag}>",)
        self.head_pattern, self.tail_pattern = f"(?P<begin><{tag}>)", f"</{tag}>"
        self._opener = Markers(self.openers)
        self.example = f'<{tag}>\n{{"name": "<tool>", "arguments": {{…}}}}\n</{tag}>'
        super().__init__(tools)

    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""
        return call_from_json(body, span, advice=self.advice)

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read one call; a doubled opening tag counts once."""
        pos = start
        while (yield from src.at(self._opener, pos)):
            pos = yield from src.past_blank(pos + len(opener))
        if pos == len(src.text) or src.text[pos] != "{":
            if not self.stands_free(src, start):
                return None
            return self.broken(src, "The call is not a JSON object.", pos)
        body = yield from read_json(src, pos)
        if isinstance(body, JsonFault):
            kind = "unclosed" if body.ended else "invalid_json"
            return Broken(kind, f"{body.message} {self.advice}", body.resume)
        end = yield from self.close(src, body.end)
        if end is None:
            pos = yield from src.past_blank(body.end)
            return self.broken(src, f"After the JSON object comes no {self.closers[0]}.", pos)
        return Block(end, [call_from_json(body.value, (start, end), advice=self.advice)])


class Hermes(BlockParser):
    """Calls as JSON objects in ``<tool_call>`` blocks; results in ``<tool_response>``."""

    tag = "tool_call"

    def build_format(self, tools: ToolSchemas) -> BlockFormat:
        """Build the block syntax."""
        return HermesFormat(tools, self.tag)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        return hermes_codec.render_call(call.name, call.arguments, tag=self.tag)

    def render_tools(self, schemas: Sequence[ToolSchema]) -> str:
        """Write the system text that tells the model its tools."""
        return hermes_codec.render_tools(schemas, tag=self.tag)

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return hermes_codec.render_result(call.name, content)


class LongCat(Hermes):
    """Hermes with a tag name of its own."""

    tag = "longcat_tool_call"
