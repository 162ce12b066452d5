"""``<invoke name="n">`` with ``<parameter name="k">`` values: DeepSeek V3.2 and V4 (DSML), MiniMax M2."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Block, Broken
from tool_call_parsers.json_body import decode_json
from tool_call_parsers.schema import ToolSchemas, written
from tool_call_parsers.source import Markers, Source, Steps
from tool_call_parsers.tagged import Tag, TaggedFormat
from trajectories.messages import ToolCall

_ATTRIBUTES = re.compile(r"""\s*([A-Za-z]+)=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")

_IS_JSON = {"true": False, "false": True}
"""What the attribute ``string`` says."""


class InvokeFormat(TaggedFormat):
    """The syntax, for any prefix of the tags and any names of the section around the calls.

    Args:
        tools: The tools a call may name.
        prefix: What stands before each tag name.
        sections: Names of the tag around the calls, the canonical one first.
    """

    def __init__(self, tools: ToolSchemas, prefix: str, sections: Sequence[str]):
        super().__init__(tools)
        self._sections = tuple(f"<{section}>" for section in sections)
        self.section_closers = tuple(f"</{section}>" for section in sections)
        self.call_opener = f"<{prefix}invoke"
        self.call_closer = f"</{prefix}invoke>"
        self.parameter_opener = self.value_opener = f"<{prefix}parameter"
        self.value_closer = f"</{prefix}parameter>"
        self.inner = (self.parameter_opener,)
        self.openers = (*self._sections, self.call_opener)
        self.closers = (self.call_closer, *self.section_closers)
        self._tag_ends = Markers((">", "<", "\n"))

    def head(self, src: Source, start: int, opener: str) -> Steps[Tag | Block | Broken | None]:
        """Read ``<invoke name="n">``, or the opening of a section."""
        free = self.stands_free(src, start)
        pos = start + len(opener)
        if opener in self._sections:
            pos = yield from src.past_blank(pos)
            if (yield from src.at(self.after_body, pos)) in self.openers:
                return Block(pos, [])
            return self.broken(src, f"After {opener} comes no call.", pos) if free else None
        tag = yield from self._attributes(src, pos)
        return tag if free else None

    def parameter(self, src: Source, pos: int) -> Steps[Tag | Broken]:
        """Read ``<parameter name="k">``."""
        return (yield from self._attributes(src, pos + len(self.parameter_opener)))

    def _attributes(self, src: Source, pos: int) -> Steps[Tag | Broken]:
        tag = yield from self.word(src, pos, self._tag_ends, ">")
        if isinstance(tag, Broken):
            return tag
        attributes: dict[str, str] = {
            found[1]: found[2] or found[3] or found[4] or "" for found in _ATTRIBUTES.finditer(" " + tag.text)
        }
        name = attributes.get("name", "").strip()
        if not name:
            return Broken("missing_name", f"A tag has no name. {self.advice}", tag.end)
        return Tag(name, tag.end, _IS_JSON.get(attributes.get("string", "").lower()))

    def opening(self, key: str) -> str:
        """Return the beginning of the tag of one parameter."""
        return f'{self.parameter_opener} name="{key}"'

    def convert(self, tool: str, key: str, text: str, is_json: bool | None) -> tuple[Any, str | None]:
        """Return the value of a parameter: the tag says whether it is JSON, else the schema does."""
        if is_json is None:
            return super().convert(tool, key, text, is_json)
        value = decode_json(text) if is_json else text
        if value is None and text.strip() != "null":
            return text, f'The argument {key!r} of {tool!r} is marked string="false" but is not JSON.'
        return value, None


class DsmlFormat(InvokeFormat):
    """DeepSeek's tags; the models also write other names of the section than their template."""

    newlines_before = 2
    ends = ("<｜end▁of▁sentence｜>",)

    def __init__(self, tools: ToolSchemas, section: str):
        names = (section, "function_calls", "tool_calls", "toolcalls")
        super().__init__(tools, "｜DSML｜", [f"｜DSML｜{name}" for name in dict.fromkeys(names)])
        self.example = (
            f'<｜DSML｜{section}>\n<｜DSML｜invoke name="tool">\n'
            '<｜DSML｜parameter name="argument" string="true">value</｜DSML｜parameter>\n'
            f"</｜DSML｜invoke>\n</｜DSML｜{section}>"
        )


class MiniMaxM2Format(InvokeFormat):
    """MiniMax' tags."""

    ends = ("[e~[",)
    example = (
        '<minimax:tool_call>\n<invoke name="tool">\n<parameter name="argument">value</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    )

    def __init__(self, tools: ToolSchemas):
        super().__init__(tools, "", ["minimax:tool_call"])


class DeepSeekV32(BlockParser):
    """Calls in DSML; each value says whether it is a string or JSON."""

    section = "function_calls"
    think = ("<think>", "</think>")
    before_calls = ""

    def build_format(self, tools: ToolSchemas) -> DsmlFormat:
        """Build what reads this format."""
        return DsmlFormat(tools, self.section)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the section of calls, an empty line before it."""
        return f"\n\n<｜DSML｜{self.section}>\n{super().render_calls(calls)}\n</｜DSML｜{self.section}>"

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        parameters = "\n".join(_dsml_parameter(key, value) for key, value in call.arguments.items())
        return f'<｜DSML｜invoke name="{call.name}">\n{parameters}\n</｜DSML｜invoke>'

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"<function_results>\n<result>{content}</result>\n</function_results>"


class DeepSeekV4(DeepSeekV32):
    """As V3.2, with another name of the section."""

    section = "tool_calls"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"<tool_result>{content}</tool_result>"


class MiniMaxM2(BlockParser):
    """Calls as ``<invoke>`` blocks; the schema types the values."""

    def build_format(self, tools: ToolSchemas) -> MiniMaxM2Format:
        """Build what reads this format."""
        return MiniMaxM2Format(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the section of calls."""
        return f"<minimax:tool_call>\n{super().render_calls(calls)}\n</minimax:tool_call>"

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        parameters = "".join(
            f'<parameter name="{key}">{written(value)}</parameter>\n' for key, value in call.arguments.items()
        )
        return f'<invoke name="{call.name}">\n{parameters}</invoke>'

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"<response>{content}</response>"


def _dsml_parameter(key: str, value: Any) -> str:
    is_string = isinstance(value, str)
    text = value if is_string else json.dumps(value, ensure_ascii=False)
    mark = "true" if is_string else "false"
    return f'<｜DSML｜parameter name="{key}" string="{mark}">{text}</｜DSML｜parameter>'
