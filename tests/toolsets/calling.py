"""Ways to call tools in tests as the toolbox would."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from backends.base import Slot
from toolsets.tool import Tool, ToolCallContext, ToolResult


class Caller:
    """Calls tools one after the other, as one rollout attempt."""

    def __init__(self, slot: Slot | None, timeout_s: float = 60.0):
        self.slot = slot
        self.timeout_s = timeout_s
        self._memory: dict[str, Any] = {}
        self._turns: Iterator[int] = count()

    async def result(self, tool: Tool, **arguments: Any) -> ToolResult:
        """Call a tool and return all of its result."""
        key = f"run/item/0/1/{next(self._turns)}/0"
        context = ToolCallContext("task", self.slot, self.timeout_s, key, 8000, self._memory)
        return await tool(context, tool.validated(arguments))

    async def __call__(self, tool: Tool, **arguments: Any) -> Any:
        """Call a tool and return what the model is told."""
        return (await self.result(tool, **arguments)).content
