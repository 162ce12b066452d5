"""What a parser found, put together to a message and, while it grows, to events.

Blanks between a block and the text around it belong to the format, not to the content: runs of nothing but
blanks are dropped, and the newlines that the format writes at either side of a block or think block. All
other content stays as it was written.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from tool_call_parsers.findings import Call, Fault, Item
from tool_call_parsers.source import Source
from trajectories.messages import Message, ParseError, ParseErrorKind, Span, ToolCall


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of the answer or of the reasoning."""

    kind: Literal["content", "reasoning"]
    text: str


Event = Delta | ToolCall | ParseError

OpenReasoning = Literal["refuse", "accept"]
"""What becomes of a call in a think block that was never closed; one in a closed block is a draft, always."""

_IN_REASONING = (
    "The call stands inside a think block that was never closed: close the block, then call the tool."
)


class Content:
    """The answer text, with the blanks around blocks taken off as it grows."""

    __slots__ = ("_after_block", "_carried", "_fresh", "_held", "_newlines", "parts")

    def __init__(self):
        self.parts: list[str] = []
        self._held: list[str] = []
        self._fresh = True
        """Whether the run since the last block holds nothing but blanks, all of them in ``_held``."""
        self._carried = ""
        """The newline dropped before a block (one, even of two); comes back where more text follows."""
        self._after_block = False
        self._newlines = 0

    def add(self, text: str) -> str:
        """Take text and return what is now surely content."""
        body = text.rstrip(" \t\r\n")
        if not body:
            self._held.append(text)
            return ""
        blanks, self._held = "".join(self._held), [text[len(body) :]]
        body = blanks + body
        if self._fresh:
            if self._carried or not self.parts:
                body = _without_newlines(body, self._newlines)
            body = self._carried + body
            self._fresh, self._carried = False, ""
        self.parts.append(body)
        return body

    def block(self, before: int = 1, after: int = 1) -> str:
        """Note that a block begins here and return the blanks that turned out to be content.

        Args:
            before: How many newlines before the block belong to it.
            after: How many after it do.
        """
        blanks = "" if self._fresh else "".join(self._held)
        for _ in range(before):
            if blanks.endswith("\n"):
                newline = "\r\n" if blanks.endswith("\r\n") else "\n"
                blanks, self._carried = blanks.removesuffix(newline), newline
        self._held, self._fresh, self._after_block, self._newlines = [], True, True, after
        if blanks:
            self.parts.append(blanks)
        return blanks

    def copy(self) -> "Content":
        """Return one that holds the same parts and goes on by itself."""
        twin = copy.copy(self)
        twin._held = self._held.copy()
        return twin

    def part(self) -> None:
        """Put the text that follows on a line of its own."""
        self._carried = "\n" if self.parts else ""

    def end(self) -> str:
        """Note that the text ends here and return the blanks that turned out to be content."""
        blanks = "" if self._fresh and self._after_block else "".join(self._held)
        self._held = []
        if blanks:
            self.parts.append(blanks)
        return blanks


@dataclass(frozen=True, slots=True)
class Mark:
    """What had been found at some point."""

    content: Content = field(default_factory=Content)
    parts: int = 0
    calls: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Blocks in a row after what may open a quotation."""

    start: int
    before: Mark
    """What had been found before."""


class Assembly:
    """The message so far and the events not yet handed out."""

    def __init__(
        self,
        source: Source,
        known: Collection[str] | None,
        open_reasoning: OpenReasoning = "refuse",
        think: tuple[str, str] = ("", ""),
    ):
        self._source = source
        self._known = known
        self._open_reasoning: OpenReasoning = open_reasoning
        self._content = Content()
        self._reasoning: list[str] | None = None
        self._think_opening, self._think_closing = think
        """What is written around the reasoning; the newlines in it belong to the think block."""
        self._think_begins = False
        self._think_held = ""
        self._calls: list[ToolCall] = []
        self._ids: set[str] = set()
        self._errors: list[ParseError] = []
        self.events: list[Event] = []

    def content(self, start: int, end: int) -> None:
        """Take characters of the answer."""
        self._emit("content", self._content.add(self._source.text[start:end]))

    def block(self, newlines: int = 1) -> None:
        """Note that a block begins here, so many newlines before it belonging to it."""
        if blanks := self._content.block(newlines):
            self._emit("content", blanks)

    def next_message(self) -> None:
        """Note that another message begins here; its text goes on a line of its own."""
        self._emit("content", self._content.block(before=0, after=0))
        self._content.part()

    def begin_reasoning(self) -> None:
        """Note that a think block begins here; an empty one is still a think block."""
        closing = self._think_closing
        self._emit("content", self._content.block(after=len(closing) - len(closing.rstrip("\n"))))
        if self._reasoning is None:
            self._reasoning = []
        else:
            self._reasoning.append("\n")
            self._emit("reasoning", "\n")
        self._think_begins, self._think_held = True, ""

    def reasoning(self, text: str) -> None:
        """Take text of the think block; a newline next to a marker is the format's where it writes one."""
        text = self._think_held + text
        if self._think_begins and text not in ("", "\r"):
            text = _without_newlines(text, self._think_opening.count("\n"))
            self._think_begins = False
        body = text
        if self._think_begins or self._think_closing.startswith("\n"):
            body = text.removesuffix("\n").removesuffix("\r")
        self._think_held = text[len(body) :]
        self._think(body)

    def _think(self, body: str) -> None:
        if body and self._reasoning is not None:
            self._reasoning.append(body)
            self._emit("reasoning", body)

    def end_reasoning(self) -> None:
        """Note that the think block ends here."""
        if self._think_held == "\r":
            self._think(self._think_held)
        self._think_held = ""

    @property
    def has_reasoning(self) -> bool:
        """Whether there was a think block."""
        return self._reasoning is not None

    def add(self, item: Item) -> None:
        """Take a call or a fault."""
        span = item.span
        raw = self._source.text[span[0] : span[1]]
        if isinstance(item, Fault):
            self._error(item.kind, raw, span, item.message)
            return
        call_id = item.native_id or f"call_{len(self._calls)}"
        while call_id in self._ids:
            call_id = f"call_{len(self._ids)}" if item.native_id == call_id else f"{call_id}_"
        self._ids.add(call_id)
        token_span = self._token_span(span) if self._source.tokens else None
        call = ToolCall(call_id, item.name, item.arguments, raw, span, token_span)
        self._calls.append(call)
        self.events.append(call)
        if self._known is not None and item.name not in self._known:
            self._error("unknown_tool", raw, span, unknown_tool(item.name, self._known))
        if item.mismatch:
            self._error("type_mismatch", raw, span, item.mismatch)

    def call_in_open_reasoning(self, call: Call) -> None:
        """Take a call that stands in a think block that never closed; its text stays reasoning too."""
        accepted = self._open_reasoning == "accept"
        self.add(call if accepted else Fault(call.span, "in_reasoning", _IN_REASONING))

    def mark(self) -> "Mark":
        """Remember what was found so far."""
        return Mark(self._content.copy(), len(self._content.parts), len(self._calls), len(self._errors))

    def found_since(self, mark: "Mark") -> bool:
        """Tell whether a call or an error was found since."""
        return len(self._calls) > mark.calls or len(self._errors) > mark.errors

    def rewind(self, mark: "Mark") -> None:
        """Forget the content, the calls and the errors found since ``mark``."""
        self._content = mark.content
        del self._content.parts[mark.parts :]
        self._ids.difference_update(call.id for call in self._calls[mark.calls :])
        del self._calls[mark.calls :], self._errors[mark.errors :]

    def rewind_to_reasoning(self, mark: "Mark", draft: str) -> None:
        """Forget what was found since ``mark``: it turned out to be a think block with the text ``draft``."""
        self.rewind(mark)
        self.begin_reasoning()
        self.reasoning(draft)
        self.end_reasoning()

    def message(self) -> Message:
        """Close the answer and return the message."""
        self._emit("content", self._content.end())
        reasoning = None if self._reasoning is None else "".join(self._reasoning)
        content = "".join(self._content.parts) or None
        return Message("assistant", content, reasoning, self._calls, self._errors)

    def _emit(self, kind: Literal["content", "reasoning"], text: str) -> None:
        if text:
            self.events.append(Delta(kind, text))

    def _error(self, kind: ParseErrorKind, raw: str, span: Span, message: str) -> None:
        error = ParseError(kind, raw, span, message, self._token_span(span))
        self._errors.append(error)
        self.events.append(error)

    def _token_span(self, span: Span) -> Span | None:
        return self._source.tokens.token_span(span) if self._source.tokens else None


def unknown_tool(name: str, known: Collection[str]) -> str:
    """Write the message for a call of a tool that does not exist."""
    return f"There is no tool named {name!r}. The tools are: {', '.join(known) or 'none'}."


def _without_newlines(text: str, most: int) -> str:
    for _ in range(most):
        text = text.removeprefix("\r\n" if text.startswith("\r\n") else "\n")
    return text
