"""One task in one sandbox, driven by TRL's tool loop."""

from functools import partial
from typing import Any

from backends.base import ToolBackend
from environments.base import BaseAgentEnv
from environments.items import TaskItem
from environments.workspace import Workspace
from toolsets.tool import Tool
from toolsets.toolbox import Toolbox
from trainers.trl_messages import transcript
from trajectories.errors import RolloutError, ToolError
from trajectories.messages import Message, ToolCall


class TrlEpisode:
    """An episode in which the world failed has no reward: TRL shows the model whatever a tool raises.

    Args:
        env: Whose reward it is.
        item: The task.
        tools: What may be called.
        backend: Where its sandbox comes from, at the first call that needs one.
        task_id: Names the episode.
    """

    def __init__(
        self, env: BaseAgentEnv, item: TaskItem, tools: list[Tool], backend: ToolBackend, task_id: str
    ):
        self._env = env
        self._item = item
        set_up = partial(env.setup_workspace, item)
        self._workspace = Workspace(backend, task_id, set_up, env.image(item), env.resources(item))
        self._toolbox = Toolbox(
            tools,
            task_id=task_id,
            key=task_id,
            slot=self._workspace.slot,
            timeout_s=env.config.tool_timeout_s,
            max_result_chars=env.config.max_result_chars,
            policy=env.config.policy,
        )
        self._calls = 0
        self._failed = False

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Run a tool and return what the model is told, its own mistakes included.

        Raises:
            RolloutError: The world failed, now or in an earlier call.
        """
        if self._failed:
            raise ToolError("the world failed in an earlier call")
        self._calls += 1
        message = Message.assistant(tool_calls=[ToolCall(f"call_{self._calls}", tool, arguments)])
        try:
            (answer,) = await self._toolbox.answer(message, self._calls)
        except RolloutError:
            self._failed = True
            raise
        return answer.message.content or ""

    async def score(self, completion: list[dict[str, Any]]) -> float | None:
        """Return the reward and end the episode; None where the world failed."""
        try:
            if self._failed:
                return None
            result = transcript(self._env.prompt(self._item).messages, completion)
            return (await self._env.score(self._item, result, self._workspace)).value
        except RolloutError:
            return None
        finally:
            await self.end()

    async def end(self) -> None:
        """Release the sandbox; idempotent."""
        await self._workspace.release()
