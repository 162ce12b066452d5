"""Which rollouts a run consists of, under ids that stay the same when it is started again."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from environments.items import TaskItem, item_key


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One rollout to make."""

    trajectory_id: str
    group_id: str
    item: TaskItem
    item_key: str
    repetition: int
    seed: int


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The rollouts of one item."""

    group_id: str
    item_key: str
    rollouts: list[RolloutSpec]


async def plan_groups(
    run: str, groups: int, group_size: int, seed: int, next_item: Callable[[], Awaitable[TaskItem]]
) -> list[GroupSpec]:
    """Draw ``groups`` items and name their rollouts."""
    endless = endless_plan(run, group_size, seed, next_item)
    return [await anext(endless) for _ in range(groups)]


async def endless_plan(
    run: str, group_size: int, seed: int, next_item: Callable[[], Awaitable[TaskItem]]
) -> AsyncIterator[GroupSpec]:
    """Draw items and name their rollouts, for as long as groups are wanted.

    Ids are made of run, item and repetition, never of positions: when items are added, removed or come in
    another order, finished rollouts are still recognised.
    """
    seen: Counter[str] = Counter()
    while True:
        item = await next_item()
        key = item_key(item)
        seen[key] += 1
        group_id = f"{run}/{key}" if seen[key] == 1 else f"{run}/{key}#{seen[key]}"
        rollouts = [
            RolloutSpec(f"{group_id}/{index}", group_id, item, key, index, _seed(seed, group_id, index))
            for index in range(group_size)
        ]
        yield GroupSpec(group_id, key, rollouts)


def _seed(seed: int, group_id: str, repetition: int) -> int:
    """Return a 31-bit seed; engines take no larger ones."""
    digest = hashlib.sha256(f"{seed}/{group_id}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
