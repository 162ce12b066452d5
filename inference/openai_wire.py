"""Messages to the bytes of an OpenAI chat request, and its answer to a message and a turn.

A message is encoded once, when it joins the conversation; a request is those bytes joined. Building the whole
history anew for every call, as SDKs do, costs time in its length at every turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inference.answer_checks import STAND_IN, present, sampled_with
from inference.well_formed import well_formed
from trajectories.errors import ModelError
from trajectories.messages import Message, ParseError, ToolCall
from trajectories.turn import FinishReason


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None
    """JSON inside a string; some servers send the object itself."""


class _ToolCall(msgspec.Struct):
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _TokenLogprob(msgspec.Struct):
    logprob: float | None = None


class _Logprobs(msgspec.Struct):
    content: list[_TokenLogprob] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ChatAnswer(msgspec.Struct):
    """What is read of a chat completion; servers add much else."""

    choices: list[_Choice]
    usage: _Usage | None = None
    prompt_token_ids: list[int] | None = None

    @property
    def choice(self) -> _Choice:
        """The only choice."""
        return self.choices[0]

    @property
    def logprobs(self) -> list[float] | None:
        """One per output token; None where the server gave none, or some without ids to train.

        Raises:
            ModelError: One is missing, or they can't be those of the output ids.
        """
        content = self.choice.logprobs.content if self.choice.logprobs else None
        if content is None:
            return None
        logprobs = present([token.logprob for token in content])
        ids = self.choice.token_ids
        if ids is None:
            return None if STAND_IN in logprobs else logprobs
        if len(ids) != len(logprobs):
            raise ModelError(f"server sent {len(ids)} output ids but {len(logprobs)} logprobs")
        sampled_with(logprobs)
        return logprobs


_answers = msgspec.json.Decoder(ChatAnswer)

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


def decode_answer(body: bytes) -> ChatAnswer:
    """Read a chat completion.

    Raises:
        ModelError: It is none, or did not end as one.
    """
    try:
        answer = _answers.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"server's answer is no chat completion ({error}): {body[:200]!r}") from error
    if len(answer.choices) != 1:
        raise ModelError(f"server sent {len(answer.choices)} choices where one was asked for")
    if answer.choice.finish_reason not in FINISH_REASONS:
        raise ModelError(f"server ended its answer with finish_reason {answer.choice.finish_reason!r}")
    return answer


def decode_message(answer: ChatAnswer) -> Message:
    """Return the assistant message; a call whose arguments are no JSON object is an error on it."""
    said = answer.choice.message
    calls: list[ToolCall] = []
    errors: list[ParseError] = []
    for index, call in enumerate(said.tool_calls or []):
        parsed = _decode_call(index, call)
        if isinstance(parsed, ToolCall):
            calls.append(parsed)
        else:
            errors.append(parsed)
    reasoning = said.reasoning if said.reasoning is not None else said.reasoning_content
    return Message("assistant", said.content, reasoning, calls, errors)


def _decode_call(index: int, call: _ToolCall) -> ToolCall | ParseError:
    name = call.function.name
    arguments = call.function.arguments
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    raw = f"{name or ''} {text}"
    if not name:
        return ParseError("missing_name", raw, None, "The tool call has no name.")
    try:
        values = msgspec.json.decode(text) if text.strip() else {}
    except msgspec.DecodeError as error:
        return ParseError("invalid_json", raw, None, f"The arguments of {name} are not valid JSON: {error}")
    if not isinstance(values, dict):
        kind = type(values).__name__
        return ParseError(
            "bad_structure", raw, None, f"The arguments of {name} must be an object, not {kind}."
        )
    return ToolCall(call.id or f"call_{index}", name, values)


def encode_messages(messages: Sequence[Message], *, reasoning_field: str | None = None) -> list[bytes]:
    """Return each message as JSON, in an order that servers accept.

    A malformed call goes back as text and its error as a user message, after the results of its well-formed
    siblings: the protocol ties a tool message to a call, and servers that fill chat templates refuse a call
    whose arguments are no JSON.

    Args:
        messages: What joins the conversation.
        reasoning_field: Name under which the server reads an assistant's reasoning; None sends none.
    """
    ordered: list[Message] = []
    unpaired: list[Message] = []
    for message in messages:
        if message.role == "tool" and message.tool_call_id is None:
            unpaired.append(Message.user(message.content or ""))
            continue
        if message.role != "tool":
            ordered, unpaired = ordered + unpaired, []
        ordered.append(message)
    return [_encode(well_formed(message), reasoning_field) for message in ordered + unpaired]


def _encode(message: Message, reasoning_field: str | None) -> bytes:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    if message.role == "assistant":
        malformed = _malformed(message)
        if malformed:
            fields["content"] = "\n".join([message.content, *malformed] if message.content else malformed)
        if message.tool_calls:
            fields["tool_calls"] = [_encode_call(call) for call in message.tool_calls]
        if reasoning_field and message.reasoning is not None:
            fields[reasoning_field] = message.reasoning
    return msgspec.json.encode(fields)


def _encode_call(call: ToolCall) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _malformed(message: Message) -> list[str]:
    """Return the raw text of blocks that are no call at all; a flagged call stands among the calls too."""
    flagged = {call.span for call in message.tool_calls if call.span is not None}
    return [error.raw for error in message.errors if error.span not in flagged]
