"""Small ways to build what many tests need."""

from typing import Any

from trajectories.messages import Message, ToolSchema
from trajectories.trajectory import StopReason, Trajectory
from trajectories.turn import SamplingParams, Turn


def trajectory_of(
    messages: list[Message], *, tools: list[ToolSchema] | None = None, **changes: Any
) -> Trajectory:
    """Build a trajectory of text-only turns, one for each assistant message."""
    turns = [Turn(message, "stop", SamplingParams()) for message in messages if message.role == "assistant"]
    fields: dict[str, Any] = {
        "trajectory_id": "run/item/0",
        "group_id": "run/item",
        "item_key": "item",
        "repetition": 0,
        "attempt": 1,
        "environment": "test",
        "config_hash": "c0ffee",
        "model": "scripted",
        "seed": 1,
        "stop_reason": StopReason.COMPLETED,
        "reward": 1.0,
    }
    return Trajectory(messages=messages, tools=tools or [], turns=turns, **{**fields, **changes})
