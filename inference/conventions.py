"""How a message is told to a chat template.

Templates agree on little: arguments as objects or as text, empty content as "" or none, reasoning in a field
of its own or inside the content. `probe` finds out which; here messages are put that way.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from inference.chat_template import MessageDict
from trajectories.messages import Message

SENTINEL = "lachesisSentinel"
"""Stands for sampled text in stubs: letters only, so that no template trims, escapes or splits it."""

Safe = Callable[[str], str]
"""Breaks the control tokens that a text spells."""


@dataclass(frozen=True, slots=True)
class Conventions:
    """How a template wants messages told."""

    arguments: Literal["object", "text"] = "object"
    """Tool arguments as a JSON object, or as its text."""
    empty_content: Literal["", None] = ""
    """Content of an assistant message that only calls tools."""
    reasoning: Literal["field", "inline"] = "field"
    """Reasoning under ``reasoning_content``, or as a think block at the beginning of the content."""
    short_call_ids: bool = False
    """Call ids must be nine letters or digits (Mistral)."""
    parallel_calls: bool = True
    """One assistant message may hold several calls."""

    def __str__(self) -> str:
        """Return the conventions in words."""
        return (
            f"arguments as {self.arguments}, reasoning {self.reasoning}, "
            + ("parallel calls" if self.parallel_calls else "one call at a time")
            + ", no content beside calls" * (self.empty_content is None)
            + ", call ids of nine characters" * self.short_call_ids
        )

    def tell(self, message: Message, safe: Safe) -> MessageDict:
        """Return ``message`` as the template wants it; ``safe`` is applied to all but system messages."""
        match message.role:
            case "system":
                return {"role": "system", "content": message.content or ""}
            case "user":
                return {"role": "user", "content": safe(message.content or "")}
            case "tool":
                return self.result(
                    safe(message.tool_call_id or ""), safe(message.name or ""), safe(message.content or "")
                )
            case "assistant":
                return self._assistant(message, safe)

    def result(self, call_id: str, name: str, content: str) -> MessageDict:
        """Return a tool's result; one that answers no call, or no named tool, is told to answer ``none``."""
        return {
            "role": "tool",
            "content": content,
            "tool_call_id": self._call_id(call_id or "none"),
            "name": name or "none",
        }

    def calls(self, calls: Sequence[tuple[str, str, dict[str, Any]]]) -> MessageDict:
        """Return an assistant message that only calls tools, each given as id, name and arguments."""
        told = [
            {
                "id": self._call_id(call_id),
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments
                    if self.arguments == "object"
                    else json.dumps(arguments, ensure_ascii=False),
                },
            }
            for call_id, name, arguments in calls
        ]
        return {"role": "assistant", "content": self.empty_content, "tool_calls": told}

    def stub_before(self, told: Sequence[MessageDict]) -> list[MessageDict]:
        """Return the shortest conversation that ``told`` may follow; its last message holds the sentinel."""
        user: MessageDict = {"role": "user", "content": "question"}
        if not told or told[0]["role"] != "tool":
            return [user, {"role": "assistant", "content": SENTINEL}]
        results = [message for message in told if message["role"] == "tool"]
        calls = [(result["tool_call_id"], result["name"], {"key": SENTINEL}) for result in results]
        return [user, self.calls(calls if self.parallel_calls else calls[-1:])]

    def _assistant(self, message: Message, safe: Safe) -> MessageDict:
        content = safe(message.content or "")
        told: MessageDict = {"role": "assistant", "content": content}
        if message.tool_calls:
            told = self.calls(
                [
                    (safe(call.id), safe(call.name), _mapped(call.arguments, safe))
                    for call in message.tool_calls
                ]
            )
            told["content"] = content or self.empty_content
        if message.reasoning is not None and self.reasoning == "field":
            told["reasoning_content"] = safe(message.reasoning)
        elif message.reasoning is not None:
            told["content"] = f"<think>\n{safe(message.reasoning)}\n</think>\n\n{content}"
        return told

    def _call_id(self, call_id: str) -> str:
        if not self.short_call_ids or re.fullmatch("[a-zA-Z0-9]{9}", call_id):
            return call_id
        return hashlib.blake2b(call_id.encode(errors="surrogatepass"), digest_size=8).hexdigest()[:9]


def texts_of(message: Message) -> Iterator[str]:
    """Yield every text of a message that somebody but the caller may have written."""
    if message.role == "system":
        return
    yield from filter(None, (message.content, message.reasoning, message.name, message.tool_call_id))
    for call in message.tool_calls:
        yield call.id
        yield call.name
        yield json.dumps(call.arguments, ensure_ascii=False)


def _mapped(value: Any, change: Safe) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return value
