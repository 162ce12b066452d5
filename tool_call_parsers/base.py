"""The contract of a parser: completion text to message and back.

    parser = get_parser("hermes", tools=schemas)
    message = parser.parse(text, finish_reason)
    stream = parser.stream(); stream.feed(delta); …; message = stream.finish(finish_reason)

No model text raises. What is malformed becomes a ``ParseError`` of the message and leaves its siblings alone;
what is only mentioned, drafted in a think block or cut off is no call.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tool_call_parsers.assembly import Assembly, Event, OpenReasoning
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source, Steps
from tool_call_parsers.token_map import Tokenizer, TokenMap
from trajectories.messages import Message, ToolCall, ToolSchema
from trajectories.turn import FinishReason


class ParserStream:
    """One completion being parsed as it arrives."""

    def __init__(self, source: Source, out: Assembly, steps: Steps[None]):
        self._source = source
        self._out = out
        self._steps = steps

    def feed(self, delta: str, token_ids: Sequence[int] | None = None) -> list[Event]:
        """Take the next text, with the ids it was decoded from where known, and return what it settled.

        Events are for watching; the message of ``finish`` is the result. (A ``</think>`` whose opening the
        prompt held makes calls already reported drafts, and the end of a quotation those quoted in a row.)
        """
        self._source.append(delta, token_ids)
        next(self._steps, None)
        events, self._out.events = self._out.events, []
        return events

    def finish(self, finish_reason: FinishReason = "stop") -> Message:
        """Say that the text is complete, and why it ended, and return the message."""
        self._source.finish_reason = finish_reason
        next(self._steps, None)
        return self._out.message()


class Parser(ABC):
    """Parser and renderer of one format family.

    Args:
        tools: Schemas in OpenAI's form: they type raw values, and calls of other tools are flagged.
        tokenizer: Maps spans to token indices, and tells markers sampled as tokens from spelled-out text.
        calls_in_open_reasoning: Whether a call in a think block that the model never closed is an error it is
            told (``refuse``) or a call (``accept``, for models that forget ``</think>``).
    """

    think: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    """What is written around the reasoning."""
    before_calls = "\n"
    """What is written between the content and the calls."""

    def __init__(
        self,
        tools: Sequence[ToolSchema] | None = None,
        tokenizer: Tokenizer | None = None,
        calls_in_open_reasoning: OpenReasoning = "refuse",
    ):
        self.schemas = ToolSchemas(tools)
        self._tokenizer = tokenizer
        self._open_reasoning: OpenReasoning = calls_in_open_reasoning

    @property
    @abstractmethod
    def example(self) -> str:
        """How a call looks; shown to the model."""

    @abstractmethod
    def steps(self, src: Source, out: Assembly, reasoning_open: bool) -> Steps[None]:
        """Read a completion to its end into ``out``."""

    def parse(
        self,
        text: str,
        finish_reason: FinishReason = "stop",
        reasoning_open: bool = False,
        token_ids: Sequence[int] | None = None,
    ) -> Message:
        """Read a completion.

        Args:
            text: The completion, special tokens included.
            finish_reason: Why it ended; with ``length`` an unfinished tail is never a call.
            reasoning_open: Whether the prompt already opened a think block.
            token_ids: The sampled ids; with a tokenizer they give calls and errors their ``token_span``.
        """
        source, out, steps = self._begin(reasoning_open)
        source.append(text, token_ids)
        source.finish_reason = finish_reason
        next(steps, None)
        return out.message()

    def stream(self, reasoning_open: bool = False) -> ParserStream:
        """Begin to read a completion that arrives in pieces."""
        return ParserStream(*self._begin(reasoning_open))

    def _begin(self, reasoning_open: bool) -> tuple[Source, Assembly, Steps[None]]:
        source = Source(TokenMap(self._tokenizer) if self._tokenizer else None)
        out = Assembly(source, self.schemas.names, self._open_reasoning, self.think)
        return source, out, self.steps(source, out, reasoning_open)

    def render(self, message: Message) -> str:
        """Write an assistant message in this format."""
        content, calls, thought = message.content or "", "", ""
        if message.reasoning is not None:
            thought = message.reasoning.join(self.think)
        if message.tool_calls:
            calls = (self.before_calls if content else "") + self.render_calls(message.tool_calls)
        return thought + content + calls

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the calls of one message."""
        return "\n".join(self.render_call(call) for call in calls)

    @abstractmethod
    def render_call(self, call: ToolCall) -> str:
        """Write one call."""

    def render_tools(self, schemas: Sequence[ToolSchema]) -> str:
        """Write the system text that tells the model its tools and how to call them."""
        listed = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
        return f"You may call these tools:\n{listed}\n\nTo call a tool, write:\n{self.example}"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call as the model expects to read it."""
        return f"<tool_response>\n{content}\n</tool_response>"
