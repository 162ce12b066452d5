"""Which rollouts a run consists of, under ids that stay the same when it is started again."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from environments.config import SamplingConfig
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
    sampling: SamplingConfig | None = None
    """As a trainer wants it; None: as the environment is set."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The rollouts of one item."""

    group_id: str
    item_key: str
    rollouts: list[RolloutSpec]


class _Names:
    """Names the groups of a run.

    Ids are made of run, item and repetition, never of positions: when items are added, removed or come in
    another order, finished rollouts are still recognised.
    """

    def __init__(self, run: str, group_size: int, seed: int):
        self._run = run
        self._group_size = group_size
        self._seed = seed
        self._seen: Counter[str] = Counter()

    def of(self, item: TaskItem) -> GroupSpec:
        key = item_key(item)
        self._seen[key] += 1
        group_id = f"{self._run}/{key}" if self._seen[key] == 1 else f"{self._run}/{key}#{self._seen[key]}"
        rollouts = [rollout_spec(group_id, item, index, self._seed) for index in range(self._group_size)]
        return GroupSpec(group_id, key, rollouts)


def plan_items(run: str, items: Iterable[TaskItem], group_size: int, seed: int) -> list[GroupSpec]:
    """Name the rollouts of items that are at hand."""
    names = _Names(run, group_size, seed)
    return [names.of(item) for item in items]


async def plan_groups(
    run: str, groups: int, group_size: int, seed: int, next_item: Callable[[], Awaitable[TaskItem]]
) -> list[GroupSpec]:
    """Draw ``groups`` items and name their rollouts."""
    return plan_items(run, [await next_item() for _ in range(groups)], group_size, seed)


async def endless_plan(
    run: str, group_size: int, seed: int, next_item: Callable[[], Awaitable[TaskItem]]
) -> AsyncIterator[GroupSpec]:
    """Draw items and name their rollouts, for as long as groups are wanted."""
    names = _Names(run, group_size, seed)
    while True:
        yield names.of(await next_item())


def rollout_spec(
    group_id: str, item: TaskItem, repetition: int, seed: int, sampling: SamplingConfig | None = None
) -> RolloutSpec:
    """Name one rollout of a group; ``seed`` is the run's."""
    return RolloutSpec(
        f"{group_id}/{repetition}",
        group_id,
        item,
        item_key(item),
        repetition,
        _seed(seed, group_id, repetition),
        sampling,
    )


def _seed(seed: int, group_id: str, repetition: int) -> int:
    """Return a 31-bit seed; engines take no larger ones."""
    digest = hashlib.sha256(f"{seed}/{group_id}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
