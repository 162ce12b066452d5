"""ShareGPT rows: what SFT trainers read.

Roles alternate, as those trainers assume: the results of parallel calls stand in one ``tool`` entry. A row
begins with the standard tool prompt, followed by the environment's own system prompt if it has one; messages
that only steered the run are left out. Malformed calls keep the text the model wrote.
"""

import json
from itertools import groupby
from typing import Any, cast

from trajectories import hermes_codec
from trajectories.errors import ConfigError
from trajectories.messages import FLAGGED, Message, ToolCall
from trajectories.trajectory import StopReason, Trajectory

ShareGPTRow = dict[str, Any]

FROM_ROLE = {"user": "human", "assistant": "gpt", "tool": "tool"}
TO_ROLE = {"human": Message.user, "system": Message.system}


def to_sharegpt(trajectory: Trajectory) -> ShareGPTRow:
    """Write one trajectory as a row."""
    return {
        "conversations": _conversations(trajectory),
        "id": trajectory.trajectory_id,
        "reward": trajectory.reward,
        "completed": trajectory.stop_reason is StopReason.COMPLETED,
        "stop_reason": trajectory.stop_reason,
        "model": trajectory.model,
        "metadata": {
            "environment": trajectory.environment,
            "group_id": trajectory.group_id,
            "item_key": trajectory.item_key,
            "repetition": trajectory.repetition,
            "attempt": trajectory.attempt,
            "seed": trajectory.seed,
            "config_hash": trajectory.config_hash,
            "reward_parts": trajectory.reward_parts,
            "metrics": trajectory.metrics,
        },
        "tool_stats": _tool_stats(trajectory),
    }


def from_sharegpt(row: ShareGPTRow) -> list[Message]:
    """Read a row's conversation.

    Raises:
        ConfigError: An entry is no ShareGPT entry.
    """
    messages: list[Message] = []
    for number, entry in enumerate(row["conversations"]):
        match entry:
            case {"from": "gpt", "value": str(value)}:
                messages.append(_read_assistant(value))
            case {"from": "tool", "value": str(value)}:
                calls = messages[-1].tool_calls if messages else []
                messages.extend(_read_results(value, calls))
            case {"from": "human" | "system" as role, "value": str(value)}:
                messages.append(TO_ROLE[role](value))
            case _:
                raise ConfigError(
                    f"conversations[{number}] needs 'from' (system, human, gpt, tool) and 'value'"
                )
    return messages


def _conversations(trajectory: Trajectory) -> list[dict[str, str]]:
    kept = [m for index, m in enumerate(trajectory.messages) if index not in trajectory.ephemeral]
    opening = [hermes_codec.render_tools(trajectory.tools)] if trajectory.tools else []
    while kept and kept[0].role == "system":
        opening.append(kept.pop(0).content or "")
    entries = [{"from": "system", "value": "\n\n".join(opening)}] if opening else []
    for role, run in groupby(kept, key=lambda message: message.role):
        values = [_value(message) for message in run]
        entries.append({"from": FROM_ROLE.get(role, role), "value": "\n".join(values)})
    return entries


def _value(message: Message) -> str:
    if message.role == "tool":
        return hermes_codec.render_result(message.name, message.content or "")
    if message.role != "assistant":
        return message.content or ""
    malformed = [error for error in message.errors if error.kind not in FLAGGED]
    if not malformed:
        return hermes_codec.render_assistant(
            message.content, reasoning=message.reasoning, tool_calls=message.tool_calls
        )
    blocks = sorted([*message.tool_calls, *malformed], key=lambda block: block.span or (0, 0))
    written = [
        hermes_codec.render_call(block.name, block.arguments) if isinstance(block, ToolCall) else block.raw
        for block in blocks
    ]
    content = "\n".join([*([message.content] if message.content else []), *written])
    return hermes_codec.render_assistant(content, reasoning=message.reasoning)


def _tool_stats(trajectory: Trajectory) -> dict[str, dict[str, int]]:
    stats: dict[str, dict[str, int]] = {}
    for turn in trajectory.turns:
        for execution in turn.tool_executions:
            counts = stats.setdefault(execution.name, {"calls": 0, "failures": 0})
            counts["calls"] += 1
            counts["failures"] += not execution.success
    return stats


def _read_assistant(value: str) -> Message:
    reasoning = None
    if value.startswith("<think>\n") and "\n</think>" in value:
        reasoning, value = value.removeprefix("<think>\n").split("\n</think>", 1)
        value = value.lstrip("\n")
    content, calls = _read_blocks(value, "tool_call")
    tool_calls = [
        ToolCall(f"call_{index}", call["name"], call["arguments"]) for index, call in enumerate(calls)
    ]
    return Message.assistant(content or None, reasoning=reasoning, tool_calls=tool_calls)


def _read_results(value: str, calls: list[ToolCall]) -> list[Message]:
    _, results = _read_blocks(value, "tool_response")
    ids = [call.id for call in calls] + [None] * len(results)
    return [
        Message.tool(_as_text(result["content"]), call_id=call_id, name=result["name"])
        for result, call_id in zip(results, ids, strict=False)
    ]


def _read_blocks(value: str, tag: str) -> tuple[str, list[dict[str, Any]]]:
    """Split text from the JSON objects in its blocks; the end of each is found by reading its JSON."""
    opener, closer = f"<{tag}>\n", f"\n</{tag}>"
    text: list[str] = []
    blocks: list[dict[str, Any]] = []
    position = 0
    while (start := value.find(opener, position)) >= 0:
        try:
            block, end = json.JSONDecoder().raw_decode(value, start + len(opener))
        except (ValueError, RecursionError):
            block, end = None, start
        if isinstance(block, dict) and value.startswith(closer, end):
            text.append(value[position:start].removesuffix("\n"))
            blocks.append(cast(dict[str, Any], block))
            position = end + len(closer)
            position += value.startswith("\n", position)
        else:
            text.append(value[position : start + len(opener)])
            position = start + len(opener)
    return "".join([*text, value[position:]]), blocks


def _as_text(content: Any) -> str:
    return (
        content
        if isinstance(content, str)
        else json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    )
