"""An environment's tools as TRL's ``environment_factory``, for models that TRL samples itself.

TRL (1.16) owns the conversation here: template, parsing, masks. Ours are the tools, the sandbox of each
episode and the reward.

The reward is a TRL reward function instead of a ``get_reward`` of the class: TRL tells that method nothing of
what the model said, and calls it for one rollout after the other.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from backends.base import ToolBackend
from environments.base import BaseAgentEnv
from environments.items import TaskItem, item_key
from rollouts.config import SandboxConfig
from rollouts.run import open_tools
from trainers.in_background import InBackground
from trainers.trl_episode import TrlEpisode
from trainers.trl_messages import as_dict
from trainers.trl_tools import trl_tool
from trajectories.errors import ConfigError


class TrlEnvironments:
    """Pass what it offers to the trainer, and train within its ``with``.

        with TrlEnvironments(env, max_slots=64) as made:
            data, factory = made.train_dataset, made.factory
            GRPOTrainer(folder, made.reward, args, train_dataset=data, environment_factory=factory).train()

    Args:
        env: Not set up yet. All its groups get the same toolsets.
        max_slots: Sandboxes at once: at least the rollouts of a generation batch, since TRL scores none of
            them before all have ended.
        sandbox: Where tools run.

    Raises:
        ConfigError: The environment draws toolsets for each group.
    """

    def __init__(
        self,
        env: BaseAgentEnv,
        max_slots: int,
        sandbox: SandboxConfig = SandboxConfig(),  # noqa: B008 - never changed
    ):
        if env.config.toolset_chances is not None:
            raise ConfigError("env.toolset_chances: TRL gives every rollout the same tools; set env.toolsets")
        self._env = env
        self._backend: InBackground[ToolBackend] = InBackground(open_tools(env, sandbox, max_slots))
        self._episodes = 0

    def __enter__(self) -> "TrlEnvironments":
        self._backend.__enter__()
        self._items = {item_key(item): item for item in (*self._env.eval_items, *self._env.items)}
        self._tools = self._env.tools_of(self._env.toolsets_of(""))
        return self

    def __exit__(self, *error: Any) -> None:
        self._backend.__exit__(*error)

    @property
    def train_dataset(self) -> Any:
        """The training items as a ``datasets.Dataset``: a conversation each, and the item's key."""
        return self._dataset(self._env.items)

    @property
    def eval_dataset(self) -> Any:
        """Likewise the evaluation items."""
        return self._dataset(self._env.eval_items)

    @property
    def factory(self) -> Callable[[], "TrlEnvironment"]:
        """A class without arguments whose public methods, beside ``reset``, are the tools.

        Raises:
            ConfigError: A tool has a name that TRL does not take for a tool's.
        """
        methods = {tool.name: trl_tool(tool) for tool in self._tools}
        if taken := {name for name in methods if hasattr(TrlEnvironment, name) or name == "get_reward"}:
            raise ConfigError(f"TRL takes no tool named {', '.join(sorted(taken))}")
        return type(type(self._env).__name__, (TrlEnvironment,), {**methods, "_home": self})

    def reward(
        self, completions: list[Any], environments: list["TrlEnvironment"], **_: Any
    ) -> list[float | None]:
        """Score the episodes together and end them; None where the world failed. A TRL reward function."""
        return self._backend.run(self._score(environments, completions))

    async def _score(
        self, environments: list["TrlEnvironment"], completions: list[Any]
    ) -> list[float | None]:
        pairs = zip(environments, completions, strict=True)
        try:
            async with asyncio.TaskGroup() as scoring:
                tasks = [scoring.create_task(each._begun().score(said)) for each, said in pairs]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def _begin(self, key: str, previous: TrlEpisode | None) -> TrlEpisode:
        if key not in self._items:
            raise ConfigError(f"{self._env.name} has no item {key!r}")
        if previous is not None:
            self._backend.run(previous.end())
        self._episodes += 1
        task_id = f"trl/{key}/{self._episodes}"
        return TrlEpisode(self._env, self._items[key], self._tools, self._backend.held, task_id)

    def _call(self, episode: TrlEpisode, tool: str, arguments: dict[str, Any]) -> str:
        return self._backend.run(episode.call(tool, arguments))

    def _dataset(self, items: Sequence[TaskItem]) -> Any:
        import datasets

        prompts = [[as_dict(message) for message in self._env.prompt(item).messages] for item in items]
        rows = {"prompt": prompts, "item_key": [item_key(item) for item in items]}
        # as columns of their own, the arguments of one call would stand in all others as None
        columns = {"prompt": datasets.List(datasets.Json()), "item_key": datasets.Value("string")}
        return datasets.Dataset.from_dict(rows, features=datasets.Features(columns))


class TrlEnvironment:
    """What TRL makes one of for each rollout of a batch, and uses again for the next batch."""

    _home: TrlEnvironments
    _episode: TrlEpisode | None = None

    def reset(self, item_key: str, **_: Any) -> None:
        """Begin an episode; one that was not scored ends."""
        self._episode = self._home._begin(item_key, self._episode)

    def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        return self._home._call(self._begun(), tool, arguments)

    def _begun(self) -> TrlEpisode:
        assert self._episode is not None, "TRL resets before it calls and scores"
        return self._episode
