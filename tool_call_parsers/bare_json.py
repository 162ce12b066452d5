"""JSON calls with no marker of their own: Llama 3 and the ``json`` text protocol.

A JSON object is a call only where a line begins with it and it has the keys of a call; any other object is
part of the answer. So an object that is an answer is neither taken for a broken call, nor its inner objects
for calls.
"""

import json
import re
from typing import Any

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.calls import call_from_json
from tool_call_parsers.findings import Block, Broken, Fault, Item, Prose
from tool_call_parsers.json_body import JsonFault, JsonValue, json_at_hand, read_json
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories.messages import Span, ToolCall

_BEGINS_LIKE_CALL = re.compile(r"""\{\s*["'](?:name|type)["']\s*:""")
_HAS_ARGUMENTS = re.compile(r"""["'](?:parameters|arguments)["']""")
_ROW_ENDS = re.compile(r"[ \t\r]*+(?:\n[ \t\r\n]*+(?![;,])|\Z)")
"""The end of a line, where the row doesn't go on after it."""
_SEPARATORS = Markers((";", ","))
_FENCE = Markers(("```",))


class BareJsonFormat(BlockFormat):
    """Objects at the beginning of a line; several may follow each other, ``;`` or a comma between."""

    tag: str
    """What may stand before the first call."""
    after_tag_only_calls: bool
    arguments_keys: tuple[str, ...]
    closers = ()
    ends = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>", "</s>", "<end_of_turn>")

    def at_hand(self, src: Source, start: int, opener: str) -> Block | None:
        """Read calls each on lines of its own, in a text that has ended."""
        if not src.ended or opener == self.tag or not self.stands_free(src, start):
            return None
        items: list[Item] = []
        pos = end = start
        while (body := json_at_hand(src, pos)) and self._has_keys_of_call(body[0]):
            line_end = _ROW_ENDS.match(src.text, body[1])
            if line_end is None:
                break
            end = body[1]
            items.append(self._call(body[0], (pos, end)))
            pos = line_end.end()
            if not src.text.startswith("{", pos):
                break
        return Block(end, items) if items else None

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | Prose | None]:
        """Read the calls of one row."""
        tagged = opener == self.tag
        sure = tagged and self.after_tag_only_calls
        pos = (yield from src.past_blank(start + len(opener))) if tagged else start
        if not self.stands_free(src, start) and not (sure and src.text.startswith("{", pos)):
            return None
        items: list[Item] = []
        end = start
        while src.text.startswith("{", pos):
            body = yield from read_json(src, pos)
            item = self._judge(src.text, pos, body, sure or bool(items))
            if isinstance(item, Broken):
                return Broken(item.kind, item.message, item.resume, items=tuple(items), start=pos)
            if item is None:
                return Prose(body.end or pos + 1)
            items.append(item)
            end = pos = item.span[1]
            pos = yield from src.past_blank(pos)
            if separator := (yield from src.at(_SEPARATORS, pos)):
                following = yield from src.past_blank(pos + 1)
                if separator == ";" or src.text.startswith("{", following):
                    end, pos = pos + 1, following
            elif "\n" in src.text[end:pos] and (sure or not tagged):
                break
        if not items:
            return self.broken(src, f"After {opener} comes no call.", pos) if sure else None
        return Block((yield from self.after_row(src, opener, end)), items)

    def _judge(self, text: str, pos: int, body: JsonValue | JsonFault, sure: bool) -> Item | Broken | None:
        """Decide whether an object is a call, a broken one, or part of the answer (None)."""
        if isinstance(body, JsonValue):
            if not sure and not self._has_keys_of_call(body.value):
                return None
            return self._call(body.value, (pos, body.end))
        if not sure and not _looks_like_call(text, pos, body.end):
            return None
        kind = "unclosed" if body.ended else "invalid_json"
        if body.end is not None:
            return Fault((pos, body.end), kind, f"{body.message} {self.advice}")
        return Broken(kind, f"{body.message} {self.advice}", body.resume)

    def _has_keys_of_call(self, value: dict[str, Any]) -> bool:
        return "name" in value and not value.keys().isdisjoint(self.arguments_keys)

    def _call(self, value: Any, span: Span) -> Item:
        return call_from_json(value, span, arguments_keys=self.arguments_keys, advice=self.advice)

    def after_row(self, src: Source, opener: str, end: int) -> Steps[int]:
        """Pass over what closes the row."""
        yield from ()
        return end


def _looks_like_call(text: str, pos: int, end: int | None) -> bool:
    """Tell whether broken JSON was to be a call; where its end is known, its arguments are to be seen."""
    if not _BEGINS_LIKE_CALL.match(text, pos):
        return False
    return end is None or _HAS_ARGUMENTS.search(text[pos:end]) is not None


class Llama3JsonFormat(BareJsonFormat):
    """Llama 3: the arguments are called parameters."""

    tag = "<|python_tag|>"
    after_tag_only_calls = True
    openers = ("{", "<|python_tag|>")
    arguments_keys = ("parameters", "arguments")
    example = '{"name": "tool", "parameters": {"argument": "value"}}'


class JsonFormat(BareJsonFormat):
    """The text protocol: one object a call, in a ``json`` fence or without."""

    tag = "```json"
    after_tag_only_calls = False
    openers = ("{", "```json")
    arguments_keys = ("arguments",)
    example = '{"name": "tool", "arguments": {"argument": "value"}}'

    def after_row(self, src: Source, opener: str, end: int) -> Steps[int]:
        """Pass over the end of the fence."""
        if opener != self.tag:
            return end
        pos = yield from src.past_blank(end)
        fence = yield from src.at(_FENCE, pos)
        return pos + len(fence) if fence else end


class Llama3Json(BlockParser):
    """Llama 3."""

    def build_format(self, tools: ToolSchemas) -> BareJsonFormat:
        """Build what reads this format."""
        return Llama3JsonFormat(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        return json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False)

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return json.dumps({"output": content}, ensure_ascii=False)


class Json(BlockParser):
    """The text protocol."""

    def build_format(self, tools: ToolSchemas) -> BareJsonFormat:
        """Build what reads this format."""
        return JsonFormat(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return json.dumps({"name": call.name, "content": content}, ensure_ascii=False)
