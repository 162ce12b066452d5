"""Kimi K2: the id ``functions.name:index`` carries the name, and the template renders it: it must survive."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.calls import call_from_arguments
from tool_call_parsers.findings import Broken, Item
from tool_call_parsers.marked_json import Head, MarkedJsonFormat
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories.messages import Span, ToolCall

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_SINGULAR, _SINGULAR_END = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"
"""What the models write at times."""
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_ID_ENDS = Markers((_ARGUMENTS, _CALL, _CALL_END, _SECTION_END, _SINGULAR_END, "{", "\n"))
_ID = re.compile(r"(?:functions\.)?(.*?)(?::\d+)?")


class KimiK2Format(MarkedJsonFormat):
    """The syntax."""

    openers = (_SECTION, _SINGULAR, _CALL)
    section_openers = (_SECTION, _SINGULAR)
    closers = (_CALL_END, _SECTION_END, _SINGULAR_END)
    section_closers = (_SECTION_END, _SINGULAR_END)
    ends = ("<|im_end|>", "[EOS]")
    newlines_before = 0
    head_pattern = (
        rf"(?:{re.escape(_SECTION)})?(?P<begin>{re.escape(_CALL)})"
        rf"(?P<id>functions\.(?P<name>[\w.-]+):\d+){re.escape(_ARGUMENTS)}"
    )
    tail_pattern = re.escape(_CALL_END)
    example = f'{_SECTION}{_CALL}functions.tool:0{_ARGUMENTS}{{"argument": "value"}}{_CALL_END}{_SECTION_END}'

    def ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        """Return the call of a block in the ordinary form."""
        return call_from_arguments(head["name"], body, span, head["id"])

    def head(self, src: Source, pos: int) -> Steps[Head | Broken]:
        """Read the id and take the name from it."""
        call_id = yield from self.word(src, pos, _ID_ENDS, _ARGUMENTS)
        if isinstance(call_id, Broken):
            return call_id
        found = _ID.fullmatch(call_id.text)
        name = found[1].strip() if found else ""
        if not name:
            return Broken(
                "missing_name", f"The id {call_id.text!r} names no tool. {self.advice}", call_id.end
            )
        return Head(name, call_id.end, call_id.text)


class KimiK2(BlockParser):
    """Calls in one section, each with its id."""

    before_calls = ""

    def build_format(self, tools: ToolSchemas) -> KimiK2Format:
        """Build what reads this format."""
        return KimiK2Format(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the section of calls; a call whose id is not Kimi's gets one by its position."""
        written = "".join(self._numbered(call, index) for index, call in enumerate(calls))
        return f"{_SECTION}{written}{_SECTION_END}"

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        return self._numbered(call, 0)

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"## Return of {call.id}\n{content}"

    def _numbered(self, call: ToolCall, index: int) -> str:
        native = call.id if call.id.startswith("functions.") else f"functions.{call.name}:{index}"
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return f"{_CALL}{native}{_ARGUMENTS}{arguments}{_CALL_END}"
