"""Groups rolled out in this process, on demand: the simplest source, and strictly on-policy.

Every trajectory goes through a run's store first. A run that is started again draws the same items under the
same ids, so it takes from the store what was made and trains what was not.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rollouts.api.scored_group import scored_group
from rollouts.attempt import World
from rollouts.runner import RunFailed, RunLimits, Runner
from rollouts.specs import endless_plan
from rollouts.store import TrajectoryStore
from trainers.batches import Lease


class LocalSource:
    """Makes groups when they are asked for; see `open_local_source`."""

    def __init__(self, world: World, store: TrajectoryStore, limits: RunLimits, name: str):
        self._world = world
        self._store = store
        self._limits = limits
        self._name = name
        env = world.env
        self._plan = endless_plan(name, env.config.group_size, env.config.seed, env.get_next_item)

    async def lease(self, groups: int) -> Lease:
        """Roll groups out; see `GroupSource.lease`.

        Raises:
            RunFailed: Nothing works.
        """
        plan = [await anext(self._plan) for _ in range(groups)]
        specs = [spec for group in plan for spec in group.rollouts]
        await Runner(self._world, self._store, self._limits).run(specs)
        kept = map(self._store.group, plan)
        name, environment = self._name, self._world.env.name
        made = [scored for group in kept if (scored := scored_group(group, name, environment, None))]
        if not made:
            raise RunFailed(
                f"no rollout of {plan[0].group_id} to {plan[-1].group_id} was scored with token ids"
            )
        return Lease(plan[0].group_id, made)

    async def ack(self, lease: Lease) -> None:
        """Do nothing: the checkpoint knows what was trained."""

    async def publish(self, policy_version: int, *, updating: bool) -> None:
        """Do nothing: no rollout runs while the policy changes."""


@asynccontextmanager
async def open_local_source(
    world: World, folder: Path, limits: RunLimits, name: str
) -> AsyncIterator[LocalSource]:
    """Open a source that keeps its trajectories in ``folder``."""
    with TrajectoryStore(folder / "trajectories.jsonl") as store:
        yield LocalSource(world, store, limits, name)
