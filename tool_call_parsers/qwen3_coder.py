"""Qwen3-Coder and Qwen 3.5: ``<function=n>`` with raw ``<parameter=k>`` values in ``<tool_call>``."""

from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Broken
from tool_call_parsers.schema import ToolSchemas, written
from tool_call_parsers.source import Markers, Source, Steps
from tool_call_parsers.tagged import Tag, TaggedFormat
from trajectories.messages import ToolCall

_NAME_ENDS = Markers((">", "<", "\n"))
_HEAD = Markers(("<tool_call>", "<function="))


class Qwen3CoderFormat(TaggedFormat):
    """The block syntax; ``<tool_call>`` may be missing, as the models leave it out at times."""

    openers = ("<tool_call>", "<function=")
    closers = ("</tool_call>",)
    ends = ("<|im_end|>", "<|endoftext|>")
    parameter_opener = value_opener = "<parameter="
    value_closer = "</parameter>"
    call_opener = "<function="
    call_closer = "</function>"
    inner = (parameter_opener, call_closer)
    trims_newlines = True
    example = (
        "<tool_call>\n<function=tool>\n<parameter=argument>\nvalue\n</parameter>\n</function>\n</tool_call>"
    )

    def head(self, src: Source, start: int, opener: str) -> Steps[Tag | Broken | None]:
        """Read ``<tool_call><function=n>``."""
        pos = start
        free = self.stands_free(src, start)
        while (mark := (yield from src.at(_HEAD, pos))) == "<tool_call>":
            pos = yield from src.past_blank(pos + len(mark))
        if mark is None:
            return self.broken(src, "After <tool_call> comes no <function=…>.", pos) if free else None
        name = yield from self.word(src, pos + len("<function="), _NAME_ENDS, ">")
        if isinstance(name, Broken):
            return name if opener == "<tool_call>" else None
        head = Tag(name.text, name.end)
        if opener == "<tool_call>":
            return head
        pos = yield from src.past_blank(name.end)
        structured = yield from src.at(self.inside, pos)
        return head if free and (structured or pos == len(src.text)) else None

    def parameter(self, src: Source, pos: int) -> Steps[Tag | Broken]:
        """Read ``<parameter=k>``."""
        key = yield from self.word(src, pos + len(self.parameter_opener), _NAME_ENDS, ">")
        return key if isinstance(key, Broken) else Tag(key.text, key.end)


class Qwen3Coder(BlockParser):
    """Calls as ``<function=…>`` blocks."""

    def build_format(self, tools: ToolSchemas) -> Qwen3CoderFormat:
        """Build what reads this format."""
        return Qwen3CoderFormat(tools)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        parameters = "".join(
            f"<parameter={key}>\n{written(value)}\n</parameter>\n" for key, value in call.arguments.items()
        )
        return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"
