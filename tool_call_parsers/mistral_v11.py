"""Mistral v11 and later: ``[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}``, one marker a call; v13 writes no id."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.calls import call_from_arguments
from tool_call_parsers.findings import Broken, Item, Word
from tool_call_parsers.marked_json import Head, MarkedJsonFormat
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories.messages import Span, ToolCall

_CALL, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME_ENDS = Markers((_ID, _ARGS, _CALL, "{", "\n"))
_NAME = re.compile(r"[\w.-]+")
_ID_ENDS = Markers((_ARGS, _CALL, "{", "\n"))


class MistralV11Format(MarkedJsonFormat):
    """The syntax."""

    openers = (_CALL,)
    closers = ()
    ends = ("</s>",)
    newlines_before = 0
    think = ("[THINK]", "[/THINK]")
    head_pattern = r"(?P<begin>\[TOOL_CALLS\])(?P<name>[\w.-]+)(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]"
    tail_pattern = ""
    example = f'{_CALL}tool{_ARGS}{{"argument": "value"}}'

    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""
        return call_from_arguments(head["name"], body, span, head["id"])

    def head(self, src: Source, pos: int) -> Steps[Head | Broken]:
        """Read the name and, where it stands, the id."""
        stop = yield from src.until(_NAME_ENDS, pos)
        has_id = stop is not None and stop.group() == _ID
        name = yield from self._word(src, pos, _NAME_ENDS, _ID if has_id else _ARGS)
        if isinstance(name, Broken) or not has_id:
            return name if isinstance(name, Broken) else Head(name.text, name.end)
        call_id = yield from self._word(src, name.end, _ID_ENDS, _ARGS)
        return call_id if isinstance(call_id, Broken) else Head(name.text, call_id.end, call_id.text)

    def _word(self, src: Source, pos: int, stops: Markers, closing: str) -> Steps[Word | Broken]:
        """Read up to ``closing``, or to a brace that follows directly: servers take ``[ARGS]`` off.

        With a blank before the brace it may be a sentence that mentions the marker.
        """
        stop = yield from src.until(stops, pos)
        if stop and stop.group() == "{" and (word := _NAME.fullmatch(src.text[pos : stop.start()])):
            return Word(word[0], stop.start())
        return (yield from self.word(src, pos, stops, closing))


class MistralV11(BlockParser):
    """Calls with a marker each; native ids survive."""

    think = ("[THINK]", "[/THINK]")
    before_calls = ""

    def build_format(self, tools: ToolSchemas) -> MistralV11Format:
        """Build what reads this format."""
        return MistralV11Format(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the calls of one message."""
        return "".join(self.render_call(call) for call in calls)

    def render_call(self, call: ToolCall) -> str:
        """Write one call, with the id where it is the model's own."""
        native = "" if not call.id or call.id.startswith("call_") else f"{_ID}{call.id}"
        return f"{_CALL}{call.name}{native}{_ARGS}{json.dumps(call.arguments, ensure_ascii=False)}"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"[TOOL_RESULTS]{call.id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]"
