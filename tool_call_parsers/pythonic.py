"""Calls written as Python: ``[f(a=1, b='x'), g()]``; Llama 4 with markers around, OLMo 3 one call a line."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Block, Broken, Call, Fault, Item, Prose
from tool_call_parsers.literals import JsonLiterals, Literals, NotALiteral, read_group
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source, Steps, any_of
from trajectories.messages import ToolCall

_NAME = re.compile(r"[\w.-]*")
_SPACES = re.compile(r"[ \t]*")
_ARGUMENT_OR_END = re.compile(r"\s*(?:\)|[A-Za-z_]\w*\s*=)")
_FIRST_ARGUMENT = re.compile(r"[\s\w]*")


class PythonicFormat(BlockFormat):
    """A list of calls alone on its lines."""

    openers = ("[",)
    closers = ()
    ends = ("<|eot_id|>", "<|eot|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>", "</s>")
    example = "[tool(argument='value')]"
    list_end = "]"
    literals: type[Literals] = Literals

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | Prose | None]:
        """Read a list of calls."""
        free = self.stands_free(src, start)
        pos = start + len(opener)
        if opener != "[":
            pos = yield from src.past_blank(pos)
            bracket = src.text.startswith("[", pos)
            if not bracket and self.list_end == "]":
                return self.broken(src, f"After {opener} comes no list of calls.", pos) if free else None
            pos += bracket and self.list_end == "]"
        pos = yield from src.past_blank(pos)
        if not free or not (yield from self._call_begins(src, pos)):
            in_markers = free and opener != "["
            name_end = yield from src.past(_NAME, pos)
            return self.broken(src, f"After {opener} comes no call.", name_end) if in_markers else None
        block = yield from self._calls(src, pos)
        if opener == "[" and isinstance(block, Block) and not (yield from self._line_ends(src, block.end)):
            return Prose(block.end)
        return block

    def _call_begins(self, src: Source, pos: int) -> Steps[bool]:
        """Tell whether a known tool, or ``name(`` with no argument or a named one, stands at ``pos``."""
        name_end = yield from src.past(_NAME, pos)
        if name_end == pos or not src.text.startswith("(", name_end):
            return False
        if src.text[pos:name_end] in (self.tools.names or ()):
            return True
        yield from src.past(_FIRST_ARGUMENT, name_end + 1)
        return _ARGUMENT_OR_END.match(src.text, name_end + 1) is not None

    def _line_ends(self, src: Source, pos: int) -> Steps[bool]:
        pos = yield from src.past(_SPACES, pos)
        if pos == len(src.text) or src.text[pos] in "\r\n":
            return True
        return (yield from src.at(self.after_body, pos)) is not None

    def _calls(self, src: Source, pos: int) -> Steps[Block | Broken]:
        closing = any_of(self.list_end, *self.closers, *self.ends)
        items: list[Item] = []
        while True:
            item = yield from self._call(src, pos)
            if isinstance(item, Broken):
                return Broken(item.kind, item.message, item.resume, items=tuple(items), start=pos)
            following = yield from src.past_blank(item.span[1])
            if following == len(src.text) and src.cut:
                broken = self.broken(src, "", following)
                return Broken(broken.kind, broken.message, following, items=tuple(items), start=pos)
            items.append(item)
            pos = following
            if src.text.startswith(",", pos):
                pos = yield from src.past_blank(pos + 1)
            if pos == len(src.text) or (mark := (yield from src.at(closing, pos))) in self.ends:
                return Block(item.span[1], items)
            if mark is not None:
                return Block((yield from self._after_list(src, pos + len(mark))), items)

    def _after_list(self, src: Source, end: int) -> Steps[int]:
        pos = yield from src.past_blank(end)
        mark = yield from src.at(self.after_body, pos)
        return pos + len(mark) if mark in self.closers else end

    def _call(self, src: Source, pos: int) -> Steps[Item | Broken]:
        name_end = yield from src.past(_NAME, pos)
        if name_end == pos or not src.text.startswith("(", name_end):
            return self.broken(src, "In the list stands something that is no call.", name_end)
        group = yield from read_group(src, name_end)
        if group.fault:
            kind = "unclosed" if group.cut else "bad_structure"
            return Broken(kind, f"The arguments are not valid: {group.fault}. {self.advice}", group.end)
        span = (pos, group.end)
        try:
            arguments = self.literals(src.text[name_end + 1 : group.end - 1]).keyword_arguments()
        except NotALiteral as error:
            return Fault(span, "bad_structure", f"The arguments are not valid: {error}. {self.advice}")
        return Call(span, src.text[pos:name_end], arguments)


class Llama4PythonicFormat(PythonicFormat):
    """The list may stand between markers."""

    openers = ("[", "<|python_start|>")
    closers = ("<|python_end|>",)


class Olmo3Format(PythonicFormat):
    """One call a line between tags; JSON literals."""

    openers = ("<function_calls>",)
    closers = ("</function_calls>",)
    list_end = "</function_calls>"
    literals = JsonLiterals
    example = '<function_calls>\ntool(argument="value")\n</function_calls>'


class Pythonic(BlockParser):
    """Calls in a Python list."""

    form: type[PythonicFormat] = PythonicFormat
    before = "["
    between = ", "
    after = "]"

    def build_format(self, tools: ToolSchemas) -> PythonicFormat:
        """Build what reads this format."""
        return self.form(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the list of calls."""
        return self.before + self.between.join(self.render_call(call) for call in calls) + self.after

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        arguments = ", ".join(f"{key}={self.literal(value)}" for key, value in call.arguments.items())
        return f"{call.name}({arguments})"

    def literal(self, value: Any) -> str:
        """Write one value."""
        return repr(value)


class Llama4Pythonic(Pythonic):
    """Llama 4."""

    form = Llama4PythonicFormat


class Olmo3(Pythonic):
    """OLMo 3."""

    form = Olmo3Format
    before = "<function_calls>\n"
    between = "\n"
    after = "\n</function_calls>"

    def literal(self, value: Any) -> str:
        """Write one value."""
        return json.dumps(value, ensure_ascii=False)
