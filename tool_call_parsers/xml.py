"""The ``xml`` text protocol: every argument a tag of its own with the raw value in it.

For models whose template has no tools, and for code: nothing in a value has to be escaped.
"""

import re
from functools import cached_property

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Broken
from tool_call_parsers.schema import ToolSchemas, written
from tool_call_parsers.source import Markers, Source, Steps
from tool_call_parsers.tagged import Tag, TaggedFormat
from trajectories.messages import ToolCall

_OPENER = Markers(("<tool_call>",))
_NAME, _NAME_ENDS = Markers(("<name>",)), Markers(("</name>", "<name>", "\n"))
_ARGUMENTS = Markers(("<arguments>",))
_TAG = re.compile(r"<([A-Za-z_][\w.-]*)>")
_CUT_TAG = re.compile(r"<[\w.-]*")
_TAG_ENDS = Markers((">", " ", "\n", "/"))


class XmlFormat(TaggedFormat):
    """The syntax."""

    openers = ("<tool_call>",)
    closers = ("</tool_call>",)
    ends = ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<end_of_turn>")
    parameter_opener = value_opener = "<"
    value_closer = "</arguments>"
    call_opener = "<tool_call>"
    call_closer = "</arguments>"
    inner = ("<name>", "<arguments>", call_closer)
    example = (
        "<tool_call>\n  <name>tool</name>\n  <arguments>\n    <argument>value</argument>\n"
        "  </arguments>\n</tool_call>"
    )

    def head(self, src: Source, start: int, opener: str) -> Steps[Tag | Broken | None]:
        """Read ``<tool_call><name>n</name><arguments>``."""
        free = self.stands_free(src, start)
        pos = start
        while (yield from src.at(_OPENER, pos)):
            pos = yield from src.past_blank(pos + len(opener))
        if not (yield from src.at(_NAME, pos)):
            return self.broken(src, "After <tool_call> comes no <name>.", pos) if free else None
        name = yield from self.word(src, pos + len("<name>"), _NAME_ENDS, "</name>")
        if isinstance(name, Broken):
            return name
        pos = yield from src.past_blank(name.end)
        if not (yield from src.at(_ARGUMENTS, pos)):
            return self.broken(src, "After the name comes no <arguments>.", pos)
        return Tag(name.text, pos + len("<arguments>"))

    def next_tag(self, src: Source, pos: int) -> Steps[str | None]:
        """Wait for what stands at ``pos``: the tag of an argument, or what ends the call."""
        if mark := (yield from src.at(self._call_ends, pos)):
            return mark
        if not src.text.startswith("<", pos):
            return None
        yield from src.until(_TAG_ENDS, pos)
        return self.parameter_opener if _TAG.match(src.text, pos) else None

    @cached_property
    def _call_ends(self) -> Markers:
        return Markers((self.call_closer, *self.closers, *self.ends))

    def parameter(self, src: Source, pos: int) -> Steps[Tag | Broken]:
        """Read ``<k>``."""
        yield from ()
        tag = _TAG.match(src.text, pos)
        return Tag(tag[1], tag.end()) if tag else self.broken(src, "An argument has no tag.", pos)

    def cut_in_mark(self, tail: str) -> bool:
        """Tell whether a text that ends with ``tail`` was cut inside a tag."""
        return super().cut_in_mark(tail) or _CUT_TAG.fullmatch(tail) is not None

    def value_tags(self, key: str) -> tuple[str, str]:
        """Return what opens and what closes the value of a parameter."""
        return f"<{key}>", f"</{key}>"

    def opening(self, key: str) -> str:
        """Return the tag of one parameter."""
        return f"<{key}>"


class Xml(BlockParser):
    """Calls with raw values in tags."""

    def build_format(self, tools: ToolSchemas) -> XmlFormat:
        """Build what reads this format."""
        return XmlFormat(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        arguments = "".join(f"    <{key}>{written(value)}</{key}>\n" for key, value in call.arguments.items())
        return (
            f"<tool_call>\n  <name>{call.name}</name>\n  <arguments>\n{arguments}  </arguments>\n</tool_call>"
        )
