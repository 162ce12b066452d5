"""What an environment is: items, a prompt, a workspace and a reward; everything else is given."""

import asyncio
import inspect
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from backends.base import Slot, ToolBackend
from backends.resources import Resources
from environments.agent_loop import Limits, Transcript
from environments.config import EnvConfig
from environments.estimates import Estimate, mean_over_groups, pass_at_k
from environments.items import PromptItem, TaskItem, load_items
from environments.reward import Reward, ToolContext, checked_reward
from environments.workspace import Workspace
from toolsets.distribution import draw_toolsets
from toolsets.registry import TOOLSETS, check_known, resolve_tools
from toolsets.requirements import find_unavailable
from toolsets.tool import Tool
from trajectories.errors import ConfigError, RewardError, RolloutError
from trajectories.messages import Message
from trajectories.trajectory import Group


@dataclass(frozen=True, slots=True)
class Prompt:
    """How a rollout begins."""

    messages: list[Message]
    ephemeral: list[int]
    """Indices of messages that only steer the run and stay out of training data."""


class BaseAgentEnv(ABC):
    """A source of tasks for a tool-using agent; one instance serves all rollouts of a run.

    A subclass gives ``name``, its ``toolsets``, items (``setup``), a prompt and a reward. It keeps no state
    of a single rollout: many run at once.
    """

    name: ClassVar[str]
    toolsets: ClassVar[Sequence[str]] = ()
    config_class: ClassVar[type[EnvConfig]] = EnvConfig
    item_model: ClassVar[type[BaseModel]] = PromptItem
    """What every item of a dataset must fit."""
    success_reward: ClassVar[float] = 1.0
    """A rollout with at least this reward counts as a pass."""

    def __init__(self, config: EnvConfig):
        self.config = config
        self.items: list[TaskItem] = []
        self.eval_items: list[TaskItem] = []
        """Items for `evaluate`; the training items are taken where there are none."""
        self._unavailable: dict[str, str] = {}
        """Toolsets that can't be used here, and why."""
        self._check_names()
        self._epochs = 0
        self._epoch_rest: list[int] = []
        """Indices of the items this epoch still has to give, the next one last."""

    async def setup(self) -> None:
        """Load ``items``, and ``eval_items`` where there are others; by default the configured dataset's.

        Raises:
            ConfigError: The dataset can't be used, or none is set and the environment has none of its own.
        """
        if self.config.dataset is None:
            raise ConfigError(f"env.dataset: {self.name} generates no items; name a dataset")
        self.items = await asyncio.to_thread(
            load_items, self.config.dataset, self.config.dataset_split, self.item_model
        )

    async def get_next_item(self) -> TaskItem:
        """Return the next item: all of them in seeded order, then again in another order."""
        if not self._epoch_rest:
            self._epoch_rest = list(range(len(self.items)))
            random.Random(f"{self.config.seed}/{self._epochs}").shuffle(self._epoch_rest)
            self._epoch_rest.reverse()
            self._epochs += 1
        return self.items[self._epoch_rest.pop()]

    @abstractmethod
    def format_prompt(self, item: TaskItem) -> str | list[Message]:
        """Return what the agent is asked, as user text or as messages."""

    def worked_examples(self) -> list[list[Message]]:
        """Return conversations that show how such tasks are done; the config says how many are used."""
        return []

    def image(self, item: TaskItem) -> str | None:
        """Return what the item's sandbox starts from: its ``image``, or None for the backend's default."""
        return item.get("image")

    def resources(self, item: TaskItem) -> Resources:
        """Return what the item's sandbox may use: its ``resources``, where they are not the backend's own."""
        return Resources(**(item.get("resources") or {}))

    async def setup_workspace(self, item: TaskItem, slot: Slot) -> None:
        """Prepare the sandbox before the agent's first command; by default with the item's ``files``."""
        for path, content in item.get("files", {}).items():
            if content is not None:
                await slot.write_file(path, content.encode())

    @abstractmethod
    async def compute_reward(self, item: TaskItem, result: Transcript, ctx: ToolContext) -> float | Reward:
        """Score what the agent did, on the sandbox it left; never on its claims about it.

        `RewardParts` puts a reward together from common parts. Where the agent could prepare its sandbox to
        fool the judge, derive from `CleanRoomEnv`: this then looks at a fresh one.
        """

    async def evaluate(self, groups: list[Group]) -> dict[str, Estimate]:
        """Summarise the rollouts of the evaluation items, each figure with its confidence interval."""
        size = max((group.size for group in groups), default=0)
        estimates = {"reward": mean_over_groups([group.rewards for group in groups])}
        for k in sorted({1, size} - {0}):
            estimates[f"pass@{k}"] = pass_at_k([self._passes(group) for group in groups], k)
        return estimates

    def _check_names(self) -> None:
        """Refuse settings that name what is not there, before anything starts."""
        self.tools_of(self._offered)
        known = {tool.name for tool in (*resolve_tools(TOOLSETS), *self.tools_of(self._offered))}
        for name in self.config.policy.tools:
            check_known(name, known, "tool")

    async def check_tools(self, backend: ToolBackend) -> None:
        """Find out which toolsets can be used here; the others are left out.

        Raises:
            SandboxError: The sandbox that was to be asked failed.
        """
        self._unavailable = await find_unavailable(self._offered, backend)

    def toolsets_of(self, group_id: str) -> list[str]:
        """Return the toolsets of a group, the same at every attempt and restart."""
        chances = self.config.toolset_chances
        if chances is None:
            return self._offered
        return draw_toolsets(chances, f"{self.config.seed}/{group_id}/toolsets")

    def tools_of(self, toolsets: Sequence[str]) -> list[Tool]:
        """Return the tools that an agent with these toolsets gets."""
        disabled = self.config.disabled_tools
        return resolve_tools(toolsets, disabled=disabled, unavailable=self._unavailable)

    @property
    def _offered(self) -> list[str]:
        """All toolsets that a group may get."""
        if self.config.toolset_chances is not None:
            return list(self.config.toolset_chances)
        return list(self.toolsets if self.config.toolsets is None else self.config.toolsets)

    @property
    def limits(self) -> Limits:
        """Bounds of one rollout."""
        return Limits(self.config.max_turns, self.config.turn_timeout_s, self.config.rollout_timeout_s)

    def prompt(self, item: TaskItem) -> Prompt:
        """Put together system prompt, worked examples and the task."""
        task = self.format_prompt(item)
        steering = self.config.ephemeral_system_prompt
        system = steering or self.config.system_prompt
        opening = [Message.system(system)] if system else []
        examples = [m for talk in self.worked_examples()[: self.config.worked_examples] for m in talk]
        messages = [*opening, *examples, *([Message.user(task)] if isinstance(task, str) else task)]
        first = len(opening)
        return Prompt(messages, [*range(first if steering else 0), *range(first, first + len(examples))])

    async def score(self, item: TaskItem, result: Transcript, workspace: Workspace) -> Reward:
        """Run `compute_reward` within its time limit, on the sandbox the agent left.

        Raises:
            RewardError: It raised, took too long, or gave a number that is not finite.
            SandboxError: The sandbox failed.
        """
        ctx = ToolContext(workspace.slot, self.config.reward_timeout_s)
        try:
            async with asyncio.timeout(self.config.reward_timeout_s):
                return checked_reward(await self.compute_reward(item, result, ctx), len(result.turns))
        except RolloutError:
            raise
        except Exception as error:
            raise RewardError(f"compute_reward: {type(error).__name__}: {error}") from error

    def _passes(self, group: Group) -> list[bool]:
        return [reward >= self.success_reward for reward in group.rewards]

    @classmethod
    def cli(cls) -> None:
        """Run ``serve | process | evaluate`` with the command line's settings."""
        importable_class = _by_module_path(cls)
        from rollouts.cli import main

        sys.exit(main(importable_class))


def _by_module_path(cls: type[BaseAgentEnv]) -> type[BaseAgentEnv]:
    """Return the class as other processes import it: run as a script, its module is only ``__main__`` here.

    The script's own folder leaves the import path: there, its neighbours would shadow other modules.
    """
    if cls.__module__ != "__main__":
        return cls
    path = Path(inspect.getfile(cls)).resolve()
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    sys.path[:] = [str(root), *(entry for entry in sys.path if Path(entry or ".").resolve() != path.parent)]
    return getattr(__import__(".".join(parts), fromlist=[cls.__name__]), cls.__name__)
