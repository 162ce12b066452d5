"""Conversations between ours and TRL's form, which is transformers'."""

from collections.abc import Sequence
from typing import Any

from environments.agent_loop import Transcript
from trajectories.messages import Message, ToolCall
from trajectories.trajectory import StopReason
from trajectories.turn import SamplingParams, Turn


def as_dict(message: Message) -> dict[str, Any]:
    """Return a message as chat templates take it."""
    said: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.tool_calls:
        functions = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
        said["tool_calls"] = [{"type": "function", "function": function} for function in functions]
    if message.name is not None:
        said["name"] = message.name
    return said


def transcript(prompt: Sequence[Message], completion: Sequence[dict[str, Any]]) -> Transcript:
    """Return what TRL kept of a conversation: turns without token ids.

    TRL does not tell why a turn ended: one that was cut counts as completed if it holds no call.
    """
    said = [_message(each) for each in completion]
    turns = [Turn(each, "stop", SamplingParams()) for each in said if each.role == "assistant"]
    answered = bool(said) and said[-1].role == "assistant" and not said[-1].tool_calls
    return Transcript([*prompt, *said], turns, StopReason.COMPLETED if answered else StopReason.MAX_TURNS)


def _message(said: dict[str, Any]) -> Message:
    if said["role"] == "tool":
        return Message.tool(str(said["content"]), call_id=None, name=said.get("name"))
    functions = [call["function"] for call in said.get("tool_calls") or []]
    calls = [ToolCall(f"call_{n}", each["name"], each["arguments"]) for n, each in enumerate(functions)]
    return Message.assistant(said.get("content"), tool_calls=calls)
