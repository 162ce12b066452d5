"""GLM 4.5 to 4.7: the name, then ``<arg_key>`` and ``<arg_value>`` pairs, in ``<tool_call>``."""

import re

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Broken
from tool_call_parsers.schema import ToolSchemas, written
from tool_call_parsers.source import Markers, Source, Steps
from tool_call_parsers.tagged import Tag, TaggedFormat
from trajectories.messages import ToolCall

_NAME = re.compile(r"[\w.:/-]+")
_NAME_ENDS = Markers(("\n", "<arg_key>", "</tool_call>", "<tool_call>"))
_KEY_ENDS = Markers(("</arg_key>", "<arg_key>", "<arg_value>", "</tool_call>"))
_VALUE = Markers(("<arg_value>",))


class Glm45Format(TaggedFormat):
    """The syntax, with newlines between the tags (4.5) or without (4.7)."""

    openers = ("<tool_call>",)
    closers = ("</tool_call>",)
    ends = ("<|user|>", "<|observation|>", "<|assistant|>", "<|endoftext|>")
    parameter_opener = "<arg_key>"
    value_opener = "<arg_value>"
    value_closer = "</arg_value>"
    inner = (parameter_opener, value_opener)
    call_opener = "<tool_call>"
    call_closer = "</tool_call>"
    example = "<tool_call>tool\n<arg_key>argument</arg_key>\n<arg_value>value</arg_value>\n</tool_call>"

    def head(self, src: Source, start: int, opener: str) -> Steps[Tag | Broken | None]:
        """Read the name."""
        free = self.stands_free(src, start)
        pos = start
        while (yield from src.at(_OPENER, pos)):
            pos = yield from src.past_blank(pos + len(opener))
        stop = yield from src.until(_NAME_ENDS, pos)
        end = stop.start() if stop else len(src.text)
        name = src.text[pos:end].strip()
        following = yield from src.past_blank(end)
        structured = following == len(src.text) or (yield from self.next_tag(src, following))
        if not free and not (structured and following < len(src.text) and _NAME.fullmatch(name)):
            return None
        if stop is None:
            return self.broken(src, "", end)
        if not name:
            return Broken("missing_name", f"After <tool_call> comes no name. {self.advice}", end)
        if not _NAME.fullmatch(name):
            return Broken("bad_structure", f"{name[:80]!r} is not the name of a tool. {self.advice}", pos)
        if not structured:
            return self.broken(
                src, f"After the name {name[:80]!r} comes neither a key nor the end.", following
            )
        return Tag(name, end)

    def parameter(self, src: Source, pos: int) -> Steps[Tag | Broken]:
        """Read ``<arg_key>k</arg_key><arg_value>``."""
        key = yield from self.word(src, pos + len("<arg_key>"), _KEY_ENDS, "</arg_key>")
        if isinstance(key, Broken):
            return key
        pos = yield from src.past_blank(key.end)
        if not (yield from src.at(_VALUE, pos)):
            return self.broken(src, f"After the key {key.text!r} comes no <arg_value>.", pos)
        return Tag(key.text, pos + len("<arg_value>"))

    def opening(self, key: str) -> str:
        """Return the beginning of the tag of one parameter."""
        return f"<arg_key>{key}</arg_key>"


_OPENER = Markers(Glm45Format.openers)


class Glm45(BlockParser):
    """Calls of GLM 4.5 and 4.6."""

    newline = "\n"

    def build_format(self, tools: ToolSchemas) -> Glm45Format:
        """Build what reads this format."""
        return Glm45Format(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        pairs = [
            f"<arg_key>{key}</arg_key>{self.newline}<arg_value>{written(value)}</arg_value>{self.newline}"
            for key, value in call.arguments.items()
        ]
        return f"<tool_call>{call.name}{self.newline}{''.join(pairs)}</tool_call>"


class Glm47(Glm45):
    """Calls of GLM 4.7: no newlines between the tags."""

    newline = ""
