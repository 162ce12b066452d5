"""File and shell tasks in a sandbox, judged by the state of the sandbox."""

from typing import Literal

from pydantic import Field

from environments.agent_loop import Transcript
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from environments.items import PromptItem, TaskItem
from environments.reward import Reward, ToolContext
from environments.terminal_families import Tier
from environments.terminal_tasks import TIERS, generate_tasks
from trajectories.messages import Message, ToolCall


class TerminalEnvConfig(EnvConfig):
    """Settings of the terminal tasks."""

    tier: Literal["easy", "medium", "hard", "mixed"] = "mixed"
    """Difficulty of generated tasks."""
    generated_items: int = Field(default=256, ge=1)
    """How many tasks to generate for training; a quarter as many others are generated for evaluation."""


class TerminalItem(PromptItem):
    """One task."""

    checks: list[str] = Field(min_length=1)
    """Commands, run in the workspace in order, that succeed once the task is done."""
    files: dict[str, str | None] = Field(default_factory=dict)
    """Path to content of what stands in the workspace at the start; None is no file."""


class TerminalEnv(BaseAgentEnv):
    """Tasks such as "Rename the file a.txt to b.txt", generated or from a dataset."""

    name = "terminal"
    toolsets = ("terminal", "files")
    config_class = TerminalEnvConfig
    item_model = TerminalItem
    config: TerminalEnvConfig

    async def setup(self) -> None:
        """Generate the tasks, or load the dataset's."""
        if self.config.dataset is not None:
            return await super().setup()
        tiers: list[Tier] = list(TIERS) if self.config.tier == "mixed" else [self.config.tier]
        count, seed = self.config.generated_items, self.config.seed
        self.eval_items = generate_tasks(f"evaluation/{seed}", tiers, max(count // 4, 1), without=set())
        held_out = {item["id"] for item in self.eval_items}
        self.items = generate_tasks(f"training/{seed}", tiers, count, without=held_out)

    def format_prompt(self, item: TaskItem) -> str:
        """Return the task as it stands."""
        return item["prompt"]

    def worked_examples(self) -> list[list[Message]]:
        """Show one task of each of the easy kinds."""
        return [
            _example("Create a directory named build.", "mkdir build"),
            _example("Write the word hello to a file named note.txt.", "echo hello > note.txt"),
            _example("Delete the file junk.txt.", "rm junk.txt"),
            _example("Copy the file data.txt to backup.txt.", "cp data.txt backup.txt"),
            _example("Create an empty file named empty.txt.", "touch empty.txt"),
            _example("Rename the file old.txt to new.txt.", "mv old.txt new.txt"),
        ]

    async def compute_reward(self, item: TaskItem, result: Transcript, ctx: ToolContext) -> Reward:
        """Give 1 where every check succeeds, else 0."""
        passed = [await ctx.passes(check) for check in item["checks"]]
        return Reward(float(all(passed)), metrics={"checks_passed": sum(passed) / len(passed)})


def _example(task: str, command: str) -> list[Message]:
    call = ToolCall("call_0", "terminal", {"command": command})
    return [
        Message.user(task),
        Message.assistant(tool_calls=[call]),
        Message.tool('{"output":"","exit_code":0}', call_id=call.id, name=call.name),
        Message.assistant("Done."),
    ]


if __name__ == "__main__":
    TerminalEnv.cli()
