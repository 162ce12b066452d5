"""Rollouts of scripted agents: real sandboxes, real tools, real judging."""

import sys

from backends import create_backend
from environments.base import BaseAgentEnv
from environments.items import TaskItem, item_key
from inference.scripted import ScriptedClient
from rollouts.attempt import World, attempt_rollout
from rollouts.specs import RolloutSpec
from trajectories.messages import Message, ToolCall
from trajectories.trajectory import Trajectory

LOCAL = {"python": sys.prefix, "warm": 0}
"""Options of a local backend whose sandboxes have pytest."""

DOCKER = {"image": "lachesis-test", "warm": 0}


def sandboxes(kind: str, **options):
    """Make a backend whose sandboxes have git and pytest; its pool has room for one."""
    return create_backend(kind, **{"max_slots": 1, **(LOCAL if kind == "local" else DOCKER), **options})


def acting(*commands: str) -> list[Message]:
    """Script an agent that runs shell commands, one a turn, and stops."""
    calls = [ToolCall(f"c{n}", "terminal", {"command": command}) for n, command in enumerate(commands)]
    return [*(Message.assistant(tool_calls=[call]) for call in calls), Message.assistant("Done.")]


async def roll_out(env: BaseAgentEnv, item: TaskItem, backend, *commands: str) -> Trajectory:
    """Make one attempt at an item with an agent that runs ``commands``."""
    spec = RolloutSpec("run/item/0", "run/item", item, item_key(item), 0, 1)
    return await attempt_rollout(spec, 1, World(env, ScriptedClient(acting(*commands)), backend, "hash"))
