"""Many rollouts at once: bounded, retried, resumable.

A rollout's failure is data and never stops its neighbours. Only a run in which nothing works stops, since
going on would pay for failures alone.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from inference.backoff import backoff_s
from rollouts.attempt import World, attempt_rollout
from rollouts.specs import RolloutSpec
from rollouts.store import TrajectoryStore
from trajectories.errors import LachesisError
from trajectories.trajectory import Trajectory

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 30.0
"""Before the next attempt at a rollout."""


class RunFailed(LachesisError):
    """Every rollout so far failed; the message holds the last reason."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How a run treats its rollouts."""

    max_concurrent: int
    """Rollouts in flight at once."""
    max_attempts: int
    """Attempts at a rollout before its failure stands."""
    failure_limit: int
    """This many failed rollouts before the first success stop the run."""


class Runner:
    """Makes the rollouts of a plan and keeps each as it ends."""

    def __init__(
        self,
        world: World,
        store: TrajectoryStore,
        limits: RunLimits,
        on_finished: Callable[[Trajectory], None] = lambda trajectory: None,
    ):
        self._world = world
        self._store = store
        self._limits = limits
        self._on_finished = on_finished
        self._succeeded = 0
        self._failed = 0

    async def run(self, specs: Iterable[RolloutSpec]) -> None:
        """Make every rollout that the store has not finished.

        Raises:
            RunFailed: The first ``failure_limit`` rollouts all failed.
            ConfigError: The store can't be written.
        """
        todo = (spec for spec in specs if not self._store.finished(spec.trajectory_id))
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._limits.max_concurrent):
                    workers.create_task(self._work(todo))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _work(self, todo: Iterator[RolloutSpec]) -> None:
        for spec in todo:
            await self.make(spec)

    async def make(self, spec: RolloutSpec, metadata: dict[str, Any] | None = None) -> Trajectory:
        """Make one rollout and keep it, with ``metadata`` in its record.

        Raises:
            RunFailed: The first ``failure_limit`` rollouts all failed.
            ConfigError: The store can't be written.
        """
        trajectory = await self._rollout(spec)
        if metadata:
            trajectory = replace(trajectory, metadata={**trajectory.metadata, **metadata})
        await self._store.append(trajectory)
        self._on_finished(trajectory)
        self._count(trajectory)
        return trajectory

    async def _rollout(self, spec: RolloutSpec) -> Trajectory:
        attempt = 1
        while True:
            trajectory = await attempt_rollout(spec, attempt, self._world)
            error = trajectory.error
            if error is None or not error.retryable or attempt == self._limits.max_attempts:
                return trajectory
            logger.warning("%s, attempt %d: %s: %s", spec.trajectory_id, attempt, error.type, error.message)
            await asyncio.sleep(backoff_s(attempt, LONGEST_WAIT_S))
            attempt += 1

    def _count(self, trajectory: Trajectory) -> None:
        if trajectory.error is None:
            self._succeeded += 1
            return
        self._failed += 1
        if not self._succeeded and self._failed >= self._limits.failure_limit:
            error = trajectory.error
            raise RunFailed(
                f"the first {self._failed} rollouts all failed, the last one at the {error.boundary}: "
                f"{error.type}: {error.message}"
            )
