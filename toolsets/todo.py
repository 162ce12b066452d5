"""The agent's list of what is to be done; it lives as long as the attempt and touches nothing."""

from collections import Counter
from typing import Literal

from pydantic import ConfigDict
from typing_extensions import TypedDict

from toolsets.tool import ToolCallContext, ToolResult, tool


class TodoItem(TypedDict):
    """One thing to do."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    task: str
    status: Literal["open", "doing", "done"]


@tool(runs_in="host")
async def todo(context: ToolCallContext, items: list[TodoItem] | None = None) -> ToolResult:
    """Keep a list of what is to be done.

    Args:
        items: The whole new list; leave it out to see the list as it is.
    """
    if items is not None:
        context.memory["todo"] = items
    kept: list[TodoItem] = context.memory.get("todo", [])
    return ToolResult({"items": kept, "count": Counter(item["status"] for item in kept)})
