"""DeepSeek V3 and R1, and V3.1: JSON arguments after ``<｜tool▁sep｜>``, with and without a code fence."""

import json
from collections.abc import Sequence

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Broken
from tool_call_parsers.marked_json import Head, MarkedJsonFormat
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories.messages import ToolCall

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCE = "```"

_SEP_OR_END = Markers((_SEP, _CALL, _CALL_END, _CALLS_END, "\n"))
_NAME_ENDS = Markers(("\n", _FENCE, "{", _CALL, _CALL_END, _CALLS_END))
_FENCES = Markers((_FENCE,))
_LANGUAGE = Markers(("json",))


class DeepSeekV31Format(MarkedJsonFormat):
    """``name<｜tool▁sep｜>{…}`` between the call markers."""

    openers = (_CALLS, _CALL)
    section_openers = (_CALLS,)
    closers = (_CALL_END, _CALLS_END)
    section_closers = (_CALLS_END,)
    ends = ("<｜end▁of▁sentence｜>",)
    newlines_before = 0
    head_pattern = rf"(?:{_CALLS})?(?P<begin>{_CALL})(?P<name>[\w.-]+){_SEP}"
    tail_pattern = _CALL_END
    example = f'{_CALLS}{_CALL}tool{_SEP}{{"argument": "value"}}{_CALL_END}{_CALLS_END}'

    def head(self, src: Source, pos: int) -> Steps[Head | Broken]:
        """Read the name."""
        name = yield from self.word(src, pos, _SEP_OR_END, _SEP)
        return name if isinstance(name, Broken) else Head(name.text, name.end)


class DeepSeekV3Format(DeepSeekV31Format):
    """``function<｜tool▁sep｜>name`` and a fenced JSON object between the call markers."""

    inner = ("```json", "json")
    head_pattern = rf"(?:{_CALLS})?(?P<begin>{_CALL})function{_SEP}(?P<name>[\w.-]+)\n```json\n"
    tail_pattern = rf"```{_CALL_END}"
    example = (
        f'{_CALLS}{_CALL}function{_SEP}tool\n```json\n{{"argument": "value"}}\n```{_CALL_END}{_CALLS_END}'
    )

    def head(self, src: Source, pos: int) -> Steps[Head | Broken]:
        """Read the type, the name and the opening fence, which may be missing."""
        kind = yield from self.word(src, pos, _SEP_OR_END, _SEP)
        if isinstance(kind, Broken):
            return kind
        stop = yield from src.until(_NAME_ENDS, kind.end)
        if stop is None:
            return self.broken(src, "", len(src.text))
        name = src.text[kind.end : stop.start()].strip()
        if not name:
            return Broken("missing_name", f"After {_SEP} comes no name. {self.advice}", stop.start())
        pos = yield from src.past_blank(stop.start())
        if fence := (yield from src.at(_FENCES, pos)):
            pos += len(fence)
            pos += len((yield from src.at(_LANGUAGE, pos)) or "")
        return Head(name, pos)

    def after_arguments(self, src: Source, pos: int) -> Steps[int]:
        """Pass over the closing fence."""
        fence_at = yield from src.past_blank(pos)
        fence = yield from src.at(_FENCES, fence_at)
        return fence_at + len(fence) if fence else pos


class DeepSeekV31(BlockParser):
    """Calls in one section, arguments bare."""

    before_calls = ""
    between = ""
    """What is written between two calls."""

    def build_format(self, tools: ToolSchemas) -> DeepSeekV31Format:
        """Build what reads this format."""
        return DeepSeekV31Format(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the section of calls."""
        return f"{_CALLS}{self.between.join(map(self.render_call, calls))}{_CALLS_END}"

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        return f"{_CALL}{call.name}{_SEP}{json.dumps(call.arguments, ensure_ascii=False)}{_CALL_END}"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>"


class DeepSeekV3(DeepSeekV31):
    """Calls in one section, arguments fenced."""

    between = "\n"

    def build_format(self, tools: ToolSchemas) -> DeepSeekV3Format:
        """Build what reads this format."""
        return DeepSeekV3Format(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return f"{_CALL}function{_SEP}{call.name}\n```json\n{arguments}\n```{_CALL_END}"
