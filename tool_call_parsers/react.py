"""The ReAct text protocol: ``TOOL: name(argument)`` to call, ``ANSWER: text`` to end.

What stands in the parentheses is ``a=1, b='x'``, or the one argument of the tool as raw text.
"""

import re
from collections.abc import Sequence
from typing import Any

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Block, Broken, Call, Fault, Item
from tool_call_parsers.literals import BRACKETS, Literals, NotALiteral, read_group
from tool_call_parsers.prose import blanks_before
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories.messages import ToolCall, ToolSchema

_SPACES = re.compile(r"[ \t]*")
_NAME = re.compile(r"[\w.-]*")
_CLOSER = Markers((")",))
_NAMED = re.compile(r"\s*[A-Za-z_]\w*\s*=")
_WORDS = re.compile(r"[\s\w]*")
_LONG_QUOTES = Markers(("'''", '"""'))


class ReactFormat(BlockFormat):
    """The syntax; a call ends with the first parenthesis that ends its line and stands in no string."""

    openers = ("TOOL:", "ANSWER:")
    closers = ()
    ends = ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<end_of_turn>")
    example = "TOOL: tool(argument='value')"
    _marks = Markers((*BRACKETS, *openers))

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read one call, or the marker of the answer."""
        answers = src.text.endswith("ANSWER:", 0, blanks_before(src.text, start))
        if answers or not self.stands_free(src, start):
            return None
        pos = yield from src.past(_SPACES, start + len(opener))
        if opener == "ANSWER:":
            return Block(pos, [])
        name_end = yield from src.past(_NAME, pos)
        if name_end == pos or not src.text.startswith("(", name_end):
            return self.broken(src, "After TOOL: comes no name with parentheses.", name_end)
        look = name_end + 1
        if (yield from self._literals_begin(src, look)):
            group = yield from read_group(src, name_end, self._marks)
            if group.cut:
                return self.broken(src, "", len(src.text))
            look = look if group.fault else group.end - 1
        while closer := (yield from src.until(_CLOSER, look)):
            look = closer.end()
            following = yield from src.past(_SPACES, look)
            ended = following == len(src.text) or src.text[following] in "\r\n"
            if (ended and not (following == len(src.text) and src.cut)) or (
                yield from src.at(self.after_body, following)
            ):
                name = src.text[pos:name_end]
                return Block(look, [self._call(name, src.text[name_end + 1 : closer.start()], (start, look))])
        return self.broken(src, "", len(src.text))

    def _literals_begin(self, src: Source, pos: int) -> Steps[bool]:
        """Tell whether a named argument, or a string of several lines, stands at ``pos``."""
        words_end = yield from src.past(_WORDS, pos)
        if _NAMED.match(src.text, pos):
            return True
        return (yield from src.at(_LONG_QUOTES, words_end)) is not None

    def _call(self, name: str, text: str, span: tuple[int, int]) -> Item:
        if not text.strip():
            return Call(span, name, {})
        known = list(self.tools.properties(name))
        if _NAMED.match(text):
            try:
                return Call(span, name, Literals(text).keyword_arguments())
            except NotALiteral as error:
                return Fault(span, "bad_structure", f"The arguments are not valid: {error}. {self.advice}")
        if len(known) > 1:
            what = f"The arguments of {name!r} must be named, one of them being {known[0]!r}."
            return Fault(span, "bad_structure", f"{what} {self.advice}")
        key = known[0] if known else "input"
        value, mismatch = self.tools.typed(name, key, _unquoted(text))
        return Call(span, name, {key: value}, mismatch=mismatch)


def _unquoted(text: str) -> str:
    """Return the text of one string literal, or the text itself where it is none."""
    try:
        return Literals(text.strip()).only_string()
    except NotALiteral:
        return text


class React(BlockParser):
    """Calls as lines of text."""

    def build_format(self, tools: ToolSchemas) -> ReactFormat:
        """Build what reads this format."""
        return ReactFormat(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        arguments = ", ".join(f"{key}={_literal(value)}" for key, value in call.arguments.items())
        return f"TOOL: {call.name}({arguments})"

    def render_tools(self, schemas: Sequence[ToolSchema]) -> str:
        """Write the system text that tells the model its tools and how to call them."""
        return f"{super().render_tools(schemas)}\n\nTo give the final answer, write:\nANSWER: text"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        return f"RESULT: {content}"


def _literal(value: Any) -> str:
    return repr(value)
