"""A two-turn task that can't be solved without its tool: small enough for a tiny model to learn in minutes.

Each item has a table of its own with random values, which only the tool can read. So a right answer takes the
right call, with the key that was asked for, and then the value that came back.
"""

import random
from collections.abc import Sequence

from pydantic import Field

from environments.agent_loop import Transcript
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from environments.items import TaskItem
from environments.reward import ToolContext
from toolsets.tool import Tool, ToolCallContext, ToolResult, tool

KEYS = [f"k{index}" for index in range(8)]
VALUES = [f"v{index}" for index in range(16)]


class LookupEnvConfig(EnvConfig):
    """Settings of the lookup task."""

    max_turns: int = 2
    """One call and one answer."""
    generated_items: int = Field(default=100_000, ge=1)
    """How many tables there are."""


@tool(runs_in="host")
async def lookup(context: ToolCallContext, key: str) -> ToolResult:
    """Look a key up in the table.

    Args:
        context: The call.
        key: The key.
    """
    if key not in KEYS:
        return ToolResult.failed("no such key")
    item_id = context.task_id.split("/")[-2].split("#")[0]  # RUN/ITEM/REPETITION, ITEM#2 in the second epoch
    return ToolResult(table(item_id)[key])


def table(item_id: str) -> dict[str, str]:
    """Return an item's table."""
    draws = random.Random(f"table/{item_id}")
    return {key: draws.choice(VALUES) for key in KEYS}


class LookupEnv(BaseAgentEnv):
    """Say the value of a key."""

    name = "lookup"
    config_class = LookupEnvConfig
    config: LookupEnvConfig

    async def setup(self) -> None:
        """Draw the keys that are asked for."""
        draws = random.Random(f"lookup/{self.config.seed}")
        self.items = [
            {"id": f"{self.config.seed}-{index}", "prompt": draws.choice(KEYS)}
            for index in range(self.config.generated_items)
        ]

    def tools_of(self, toolsets: Sequence[str]) -> list[Tool]:
        """Return the lookup, which is in no toolset: only this environment has tables."""
        return [lookup]

    def format_prompt(self, item: TaskItem) -> str:
        """Return the key."""
        return item["prompt"]

    async def compute_reward(self, item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        """Give 1 for the value and nothing else, else 0."""
        return float(result.answer == table(item["id"])[item["prompt"]])


if __name__ == "__main__":
    LookupEnv.cli()
