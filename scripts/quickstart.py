"""A whole environment: tasks, a sandbox, a reward that looks at the sandbox."""

from environments.base import BaseAgentEnv
from trajectories.messages import Message, ToolCall

NAMES = ["build", "docs", "images", "logs", "music", "photos", "site", "videos"]


class DirectoryEnv(BaseAgentEnv):
    """Ask for a directory; reward it if it is there."""

    name = "directories"
    toolsets = ("terminal",)

    async def setup(self):
        """Make one task for each name."""
        self.items = [{"id": name, "prompt": f"Create a directory named {name}."} for name in NAMES]

    def format_prompt(self, item):
        """Ask for the directory."""
        return item["prompt"]

    def worked_examples(self):
        """Show how it is done; this steers the run and is never written to training data."""
        call = ToolCall("c", "terminal", {"command": "mkdir test"})
        done = [
            Message.tool('{"output":"","exit_code":0}', call_id="c", name="terminal"),
            Message.assistant("Done."),
        ]
        return [[Message.user("Create a directory named test."), Message.assistant(tool_calls=[call]), *done]]

    async def compute_reward(self, item, result, ctx):
        """Look into the sandbox."""
        return float(await ctx.passes(f"test -d {item['id']}"))


if __name__ == "__main__":
    DirectoryEnv.cli()
