"""What is said in a conversation: messages, tool calls, and the calls a parser could not accept.

They are structs of msgspec, as parsers make several per completion: a frozen dataclass takes six times as
long to make. `msgspec.structs.replace` changes a field.
"""

from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]

Span = tuple[int, int]
"""Half-open range ``[start, end)``, in characters of the completion text or in indices of its token ids."""

ToolSchema = dict[str, Any]
"""One tool in OpenAI's form: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""

ParseErrorKind = Literal[
    "invalid_json",
    "unclosed",
    "missing_name",
    "bad_structure",
    "unknown_tool",
    "type_mismatch",
    "in_reasoning",
]

FLAGGED: frozenset[ParseErrorKind] = frozenset({"unknown_tool", "type_mismatch"})
"""Kinds of errors whose block stands among the tool calls too, with the same span."""


class ToolCall(Struct, frozen=True):
    """One tool call of an assistant message."""

    id: str
    """Unique within its message. Model-made ids repeat across turns: key nothing global by them."""
    name: str
    arguments: dict[str, Any]
    raw: str = ""
    """The call as the model wrote it; empty where a server parsed it."""
    span: Span | None = None
    """Where ``raw`` stands in the completion text; None where a server parsed it."""
    token_span: Span | None = None
    """Where ``raw`` stands in the sampled ids; None where they are unknown."""


class ParseError(Struct, frozen=True):
    """What is wrong with one block of a completion, told so that the model can mend it.

    A call that is only flagged (`FLAGGED`) stands among the tool calls too.
    """

    kind: ParseErrorKind
    raw: str
    span: Span | None
    message: str
    token_span: Span | None = None


class Message(Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    content: str | None = None
    reasoning: str | None = None
    """Text of the think block without its markers; None where there was no block, "" where it was empty."""
    tool_calls: list[ToolCall] = []
    errors: list[ParseError] = []
    tool_call_id: str | None = None
    """On a tool message: the call it answers; None where it answers a malformed block."""
    name: str | None = None
    """On a tool message: the tool that answers."""

    @classmethod
    def system(cls, content: str) -> "Message":
        """Build a system message."""
        return cls("system", content)

    @classmethod
    def user(cls, content: str) -> "Message":
        """Build a user message."""
        return cls("user", content)

    @classmethod
    def assistant(
        cls,
        content: str | None = None,
        *,
        reasoning: str | None = None,
        tool_calls: list[ToolCall] | None = None,
    ) -> "Message":
        """Build an assistant message."""
        return cls("assistant", content, reasoning, tool_calls or [])

    @classmethod
    def tool(cls, content: str, *, call_id: str | None, name: str | None) -> "Message":
        """Build the result of one tool call."""
        return cls("tool", content, tool_call_id=call_id, name=name)
