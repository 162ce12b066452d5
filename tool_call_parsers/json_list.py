"""A list of JSON calls after one marker: Mistral, Granite, Phi-4-mini, Hunyuan."""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.calls import call_from_json
from tool_call_parsers.findings import Block, Broken, Fault, Item
from tool_call_parsers.json_body import JsonValue, json_at_hand, read_json
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source, Steps, blank_end
from trajectories.messages import Span, ToolCall

_LIST_BEGIN = re.compile(r"[ \t\r\n]*+\[[ \t\r\n]*+(?:(?=\{)|(\]))")
_BETWEEN = re.compile(r"[ \t\r\n]*+(?:,[ \t\r\n]*+(?=\{)|(\]))")
"""What parts two elements; group 1 is the end of the list."""


class JsonListFormat(BlockFormat):
    """``MARKER[{"name": …, "arguments": {…}}, …]``; each element is judged by itself."""

    arguments_keys: tuple[str, ...] = ("arguments",)

    def at_hand(self, src: Source, start: int, opener: str) -> Block | None:
        """Read a list of calls in a text that has ended."""
        text = src.text
        between = _LIST_BEGIN.match(text, start + len(opener)) if src.ended else None
        items: list[Item] = []
        while between and not between[1]:
            pos = between.end()
            body = json_at_hand(src, pos)
            if body is None:
                return None
            items.append(self._call(body[0], (pos, body[1])))
            between = _BETWEEN.match(text, body[1])
        if between is None:
            return None
        end = between.end()
        mark = self.after_body.pattern.match(text, blank_end(text, end))
        return Block(mark.end() if mark and mark.group() in self.closers else end, items)

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read a list of calls, or one call without a list around it."""
        pos = yield from src.past_blank(start + len(opener))
        if src.text.startswith("{", pos):
            element = yield from self._element(src, pos)
            return element if isinstance(element, Broken) else (yield from self._closed(src, [element]))
        if not src.text.startswith("[", pos):
            free = self.stands_free(src, start)
            return self.broken(src, f"After {opener} comes no list of calls.", pos) if free else None
        return (yield from self._list(src, pos + 1))

    def _list(self, src: Source, pos: int) -> Steps[Block | Broken]:
        items: list[Item] = []
        pos = yield from src.past_blank(pos)
        while not src.text.startswith("]", pos):
            if not src.text.startswith(("{", "["), pos):
                broken = self.broken(src, "In the list stands something that is no call.", pos)
                return replace(broken, items=tuple(items), start=pos)
            item = yield from self._element(src, pos)
            if isinstance(item, Broken):
                return replace(item, items=tuple(items))
            pos = yield from src.past_blank(item.span[1])
            if pos == len(src.text) and src.cut:
                return replace(self.broken(src, "", pos), items=tuple(items), start=item.span[0])
            items.append(item)
            if pos == len(src.text) or (yield from src.at(self.after_body, pos)):
                return Block(item.span[1], items)
            if src.text[pos] == ",":
                pos = yield from src.past_blank(pos + 1)
        return (yield from self._closed(src, items, pos + 1))

    def _element(self, src: Source, pos: int) -> Steps[Item | Broken]:
        body = yield from read_json(src, pos)
        if isinstance(body, JsonValue):
            return self._call(body.value, (pos, body.end))
        if body.end is not None:
            return Fault((pos, body.end), "invalid_json", f"{body.message} {self.advice}")
        kind = "unclosed" if body.ended else "invalid_json"
        return Broken(kind, f"{body.message} {self.advice}", body.resume, start=pos)

    def _call(self, value: Any, span: Span) -> Item:
        return call_from_json(value, span, arguments_keys=self.arguments_keys, advice=self.advice)

    def _closed(self, src: Source, items: list[Item], end: int | None = None) -> Steps[Block]:
        """Take the closing marker, where there is one, into the block."""
        end = items[-1].span[1] if end is None else end
        pos = yield from src.past_blank(end)
        mark = yield from src.at(self.after_body, pos)
        return Block(pos + len(mark) if mark in self.closers else end, items)


class MistralFormat(JsonListFormat):
    """Mistral before v11."""

    openers = ("[TOOL_CALLS]",)
    closers = ()
    ends = ("</s>",)
    newlines_before = 0
    think = ("[THINK]", "[/THINK]")
    example = '[TOOL_CALLS] [{"name": "tool", "arguments": {"argument": "value"}}]'


class GraniteFormat(JsonListFormat):
    """Granite 3."""

    openers = ("<|tool_call|>", "<tool_call>")
    closers = ("</tool_call>",)
    ends = ("<|end_of_text|>",)
    example = '<|tool_call|>[{"name": "tool", "arguments": {"argument": "value"}}]'


class Phi4MiniFormat(JsonListFormat):
    """Phi-4-mini; ``functools`` is a module of Python too."""

    openers = ("functools", "<|tool_call|>")
    closers = ("<|/tool_call|>",)
    ends = ("<|end|>", "<|endoftext|>")
    arguments_keys = ("arguments", "parameters")
    example = 'functools[{"name": "tool", "arguments": {"argument": "value"}}]'

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read a list of calls; the word alone is prose."""
        if opener == "functools":
            pos = yield from src.past_blank(start + len(opener))
            if src.text.startswith("[", pos):
                pos = yield from src.past_blank(pos + 1)
            elif not src.text.startswith("{", pos):
                return None
            if pos < len(src.text) and src.text[pos] not in "{]":
                return None
        return (yield from super().read(src, start, opener))


class HunyuanA13BFormat(JsonListFormat):
    """Hunyuan A13B."""

    openers = ("<tool_calls>",)
    closers = ("</tool_calls>",)
    ends = ("<|eos|>",)
    example = '<tool_calls>[{"name": "tool", "arguments": {"argument": "value"}}]</tool_calls>'


class JsonListParser(BlockParser):
    """Calls in one list."""

    form: type[JsonListFormat]
    before: str
    after: str = ""

    def build_format(self, tools: ToolSchemas) -> JsonListFormat:
        """Build what reads this format."""
        return self.form(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the list of calls."""
        return f"{self.before}[{', '.join(self.render_call(call) for call in calls)}]{self.after}"

    def render_call(self, call: ToolCall) -> str:
        """Write one element of the list."""
        return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


class Mistral(JsonListParser):
    """Mistral before v11; native ids of nine letters and digits survive."""

    form = MistralFormat
    before = "[TOOL_CALLS] "
    think = ("[THINK]", "[/THINK]")
    before_calls = ""

    def render_call(self, call: ToolCall) -> str:
        """Write one element of the list, with the id where it is the model's own."""
        body = {"name": call.name, "arguments": call.arguments}
        native = {} if not call.id or call.id.startswith("call_") else {"id": call.id}
        return json.dumps({**body, **native}, ensure_ascii=False)

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        body = json.dumps({"content": content, "call_id": call.id}, ensure_ascii=False)
        return f"[TOOL_RESULTS] {body}[/TOOL_RESULTS]"


class Granite(JsonListParser):
    """Granite 3."""

    form = GraniteFormat
    before = "<|tool_call|>"


class Phi4Mini(JsonListParser):
    """Phi-4-mini."""

    form = Phi4MiniFormat
    before = "functools"


class HunyuanA13B(JsonListParser):
    """Hunyuan A13B."""

    form = HunyuanA13BFormat
    before = "<tool_calls>"
    after = "</tool_calls>"
