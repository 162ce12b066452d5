"""Shell and file tasks, generated from a seed in several difficulties."""

import random
from typing import get_args

from environments.items import TaskItem
from environments.terminal_families import FAMILIES, Tier
from trajectories.errors import ConfigError

TIERS: tuple[Tier, ...] = get_args(Tier)

MAX_MISSES = 20_000
"""Draws of a task that was there already, before the families count as exhausted."""


def generate_tasks(seed: str, tiers: list[Tier], count: int, without: set[str]) -> list[TaskItem]:
    """Return ``count`` different tasks, evenly from the families of the tiers.

    Args:
        seed: Equal seeds give equal tasks.
        tiers: Difficulties to draw from.
        count: How many.
        without: Ids of tasks that must not be among them.

    Raises:
        ConfigError: The families do not have so many.
    """
    draws = random.Random(seed)
    families = [family for tier in tiers for family in FAMILIES[tier]]
    tasks: dict[str, TaskItem] = {}
    misses = 0
    while len(tasks) < count:
        task = families[(len(tasks) + misses) % len(families)](draws)
        if task["id"] in tasks or task["id"] in without:
            misses += 1
            if misses > MAX_MISSES:
                raise ConfigError(
                    f"env.generated_items: there are not {count} different {'/'.join(tiers)} tasks"
                )
        else:
            tasks[task["id"]] = task
    return list(tasks.values())
