"""gpt-oss (harmony): messages with a channel and, for calls, a recipient.

    <|channel|>analysis<|message|>…<|end|>
    <|start|>assistant<|channel|>commentary to=functions.n <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>…<|return|>

The analysis channel is reasoning, the final one and commentary without a recipient are content. A message
ends at its end marker or where the next one starts; a channel marker inside a message is a quotation.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tool_call_parsers.assembly import Assembly, Row
from tool_call_parsers.base import Parser
from tool_call_parsers.calls import call_from_arguments
from tool_call_parsers.findings import Fault, Item
from tool_call_parsers.json_blocks import JsonRow
from tool_call_parsers.json_body import JsonFault, read_json
from tool_call_parsers.prose import after_quote, in_quotes
from tool_call_parsers.source import Markers, Source, Steps, blank_end
from trajectories.messages import Message, ParseErrorKind, Span, ToolCall

_CLOSERS = ("<|end|>", "<|call|>", "<|return|>")
_BEGINS = Markers(("<|start|>assistant", "<|channel|>"))
_HEADER_ENDS = Markers(("<|message|>", "<|start|>assistant", *_CLOSERS))
_ENDS = Markers(("<|start|>assistant", *_CLOSERS))
_TEXT_ENDS = Markers(("<|start|>assistant", "<|end|>", "<|return|>"))
_STRAY = Markers(_CLOSERS)
_TO, _CHANNEL_MARK = Markers(("to=",)), Markers(("<|channel|>",))
_NAME = re.compile(r"[^\s<]*")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]*)")
_CALL_HEAD = (
    r"(?P<begin>(?:<\|start\|>assistant)?<\|channel\|>commentary to=functions\.(?P<name>[\w.-]+)"
    r" <\|constrain\|>json<\|message\|>)"
)
_CALL_TAIL = r"<\|call\|>"
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ADDRESSED = re.compile(
    r"(?:<\|start\|>assistant)?(?:\s*+to=[^\s<]++\s*+<\|channel\|>|<\|channel\|>\s*+\w++\s++to=[^\s<])"
)
"""A header with a recipient right after the role or the channel, as none is mentioned in prose."""


class _HeaderEnd(NamedTuple):
    """The marker that ends a header, and where it stands."""

    mark: str
    start: int


class HarmonyFormat:
    """The syntax."""

    example = (
        '<|channel|>commentary to=functions.tool <|constrain|>json<|message|>{"argument": "value"}<|call|>'
    )

    def __init__(self):
        self._row = JsonRow(_CALL_HEAD, _CALL_TAIL, "", self._ordinary)

    def _ordinary(self, head: re.Match[str], body: Any, span: Span) -> Item:
        return call_from_arguments(head["name"], body, span)

    def steps(self, src: Source, out: Assembly, reasoning_open: bool) -> Steps[None]:
        """Read the messages of one completion; text outside of any is content."""
        pos = (yield from self._text(src, out, 0, reasoning=True)) if reasoning_open else 0
        role_end = yield from self._role_end(src, pos)
        if role_end is not None:
            pos = (yield from self._headed(src, out, pos, role_end)) or pos
        sent = pos

        def passed(safe: int) -> None:
            nonlocal sent
            out.content(sent, safe)
            sent = safe

        row: Row | None = None
        while begin := (yield from src.until(_BEGINS, pos, passed)):
            passed(begin.start())
            end = None
            if blank_end(src.text, pos) < begin.start():
                row = Row(begin.start(), out.mark()) if after_quote(src.text, begin.start()) else None
            if begin.start() == pos or (yield from self._header_end(src, begin.end())):
                end = yield from self._headed(src, out, begin.start(), begin.end())
            pos, sent = end or begin.end(), end or sent
            if row and out.found_since(row.before) and in_quotes(src.text, row.start, pos):
                out.rewind(row.before)
                row, sent = None, row.start
        rest = blank_end(src.text, pos)
        if row and src.cut and _BEGINS.held_from(src.text, rest) == rest:
            out.rewind(row.before)
            sent = row.start
        passed(len(src.text))

    def _role_end(self, src: Source, pos: int) -> Steps[int | None]:
        """Return where the channel begins if the text goes on with the role that the prompt began."""
        pos = yield from src.past_blank(pos)
        if not (yield from src.at(_TO, pos)):
            return None
        pos = yield from src.past(_NAME, pos)
        pos = yield from src.past_blank(pos)
        return pos if (yield from src.at(_CHANNEL_MARK, pos)) else None

    def _headed(self, src: Source, out: Assembly, start: int, look: int) -> Steps[int | None]:
        """Read the message whose header begins at ``start`` and return its end; None if it is none."""
        if end := self._at_hand(src, out, start):
            return (yield from self._past_stray(src, end))
        header = yield from self._header_end(src, look)
        if header is None:
            out.add(Fault((start, len(src.text)), "unclosed", f"The message has no body. {self._advice}"))
            return len(src.text)
        header_end = header.start + len(header.mark)
        if header.mark == "<|call|>" and _ADDRESSED.match(src.text, start):
            out.next_message()
            what = f"Between the header and the body comes no <|message|>. {self._advice}"
            out.add(Fault((start, header_end), "bad_structure", what))
            return header_end
        if header.mark != "<|message|>":
            return None
        out.next_message()
        end = yield from self._message(src, out, start, header.start, header_end)
        return (yield from self._past_stray(src, end))

    def _past_stray(self, src: Source, end: int) -> Steps[int]:
        while mark := (yield from src.at(_STRAY, end)):
            end += len(mark)
        return end

    def _header_end(self, src: Source, pos: int) -> Steps[_HeaderEnd | None]:
        """Wait for the end of the header that goes on at ``pos``; all markers before it share one search."""
        known: _HeaderEnd | None = src.memo.get("header end")
        if known is None or known.start < pos:
            found = yield from src.until(_HEADER_ENDS, pos)
            known = src.memo["header end"] = _HeaderEnd(found.group(), found.start()) if found else None
        return known

    @property
    def _advice(self) -> str:
        return f"A call looks like this:\n{self.example}"

    def _at_hand(self, src: Source, out: Assembly, start: int) -> int | None:
        """Read a row of ordinary calls and return its end."""
        row = None if src.tokens else self._row.at_hand(src, start)
        if row is None:
            return None
        out.next_message()
        for item in row.items:
            out.add(item)
        return row.end

    def _message(self, src: Source, out: Assembly, start: int, header_end: int, body: int) -> Steps[int]:
        header = src.text[start:header_end]
        recipient = _RECIPIENT.search(header)
        if recipient:
            item = yield from self._call(src, start, recipient[1], body)
            out.add(item)
            return item.span[1]
        channel = _CHANNEL.search(header)
        return (yield from self._text(src, out, body, reasoning=bool(channel) and channel[1] == "analysis"))

    def _text(self, src: Source, out: Assembly, start: int, *, reasoning: bool) -> Steps[int]:
        sent = start

        def passed(safe: int) -> None:
            nonlocal sent
            out.reasoning(src.text[sent:safe]) if reasoning else out.content(sent, safe)
            sent = safe

        if reasoning:
            out.begin_reasoning()
        stop = yield from src.until(_TEXT_ENDS, start, passed)
        passed(stop.start() if stop else len(src.text))
        if reasoning:
            out.end_reasoning()
        if stop is None:
            return len(src.text)
        return stop.end() if stop.group() in _CLOSERS else stop.start()

    def _call(self, src: Source, start: int, name: str, body: int) -> Steps[Item]:
        if not name:
            return (yield from self._fault(src, start, body, "missing_name", "The recipient is no tool."))
        pos = yield from src.past_blank(body)
        if not src.text.startswith("{", pos):
            kind = "unclosed" if pos == len(src.text) else "bad_structure"
            return (yield from self._fault(src, start, pos, kind, "The body is no JSON object."))
        value = yield from read_json(src, pos)
        if isinstance(value, JsonFault):
            kind = "unclosed" if value.ended else "invalid_json"
            return (yield from self._fault(src, start, value.resume, kind, value.message))
        pos = yield from src.past_blank(value.end)
        mark = yield from src.at(_ENDS, pos)
        if mark is None and (pos < len(src.text) or src.cut):
            cut = any(closer.startswith(src.text[pos : pos + len(closer)]) for closer in _CLOSERS)
            kind = "unclosed" if cut else "bad_structure"
            return (yield from self._fault(src, start, pos, kind, "After the body comes no <|call|>."))
        end = pos + len(mark) if mark in _CLOSERS else value.end
        return call_from_arguments(name, value.value, (start, end))

    def _fault(self, src: Source, start: int, pos: int, kind: ParseErrorKind, what: str) -> Steps[Fault]:
        """Report a broken call, which ends with its message."""
        stop = yield from src.until(_ENDS, pos)
        end = len(src.text) if stop is None else stop.end() if stop.group() in _CLOSERS else stop.start()
        return Fault((start, end), kind, f"{what} {self._advice}")


class GptOss(Parser):
    """Calls as messages to a tool."""

    think = ("<|channel|>analysis<|message|>", "<|end|>")

    _format = HarmonyFormat()

    @property
    def example(self) -> str:
        """How a call looks."""
        return self._format.example

    def steps(self, src: Source, out: Assembly, reasoning_open: bool) -> Steps[None]:
        """Read a completion to its end into ``out``."""
        return self._format.steps(src, out, reasoning_open)

    def render(self, message: Message) -> str:
        """Write an assistant message, as continued after ``<|start|>assistant``."""
        parts: list[str] = []
        if message.reasoning is not None:
            parts.append(message.reasoning.join(self.think))
        if message.content is not None:
            channel, end = ("commentary", "<|end|>") if message.tool_calls else ("final", "<|return|>")
            parts.append(f"<|channel|>{channel}<|message|>{message.content}{end}")
        parts += [self.render_call(call) for call in message.tool_calls]
        return "<|start|>assistant".join(parts)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the calls of one message."""
        return "<|start|>assistant".join(self.render_call(call) for call in calls)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        header = f"<|channel|>commentary to=functions.{call.name} <|constrain|>json"
        return f"{header}<|message|>{arguments}<|call|>"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        header = f"<|start|>functions.{call.name} to=assistant<|channel|>commentary"
        return f"{header}<|message|>{content}<|end|>"
