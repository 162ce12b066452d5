"""Evaluations on schedule, beside the training rollouts.

Each has its own rollouts under ids that name the policy version, in a log of its own. Training goes on
meanwhile. One runs at a time: where the next comes due before it ends, that one starts late, with the version
there is by then.
"""

import asyncio
import logging
from dataclasses import replace

from environments.base import BaseAgentEnv
from environments.estimates import Estimate
from rollouts.held_out import held_out_plan
from rollouts.report import write_report
from rollouts.run import Run
from rollouts.runner import RunFailed, Runner
from rollouts.store import TrajectoryStore

logger = logging.getLogger(__name__)


class EvaluationSchedule:
    """Evaluates after every so many policy versions."""

    def __init__(self, env: BaseAgentEnv, run: Run, store: TrajectoryStore, every: int, max_items: int):
        self.latest = ""
        """Version and estimates of the last evaluation, to be shown."""
        self._env = env
        self._run = run
        self._store = store
        self._every = every
        self._max_items = max_items
        self._last: int | None = None
        self._running: asyncio.Task[None] | None = None

    def policy_is(self, version: int) -> None:
        """Start an evaluation if one is due; raises what the one before it raised."""
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()
        if self._last is not None and version < self._last + self._every:
            return
        self._last = version
        self._running = asyncio.create_task(self._evaluate(version))

    async def finish(self) -> None:
        """Wait for the evaluation that runs."""
        if self._running is not None:
            await self._running

    async def stop(self) -> None:
        """Cancel the evaluation that runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _evaluate(self, version: int) -> None:
        run, name = self._run, f"{self._run.folder.name}-evaluation-{version}"
        plan = held_out_plan(self._env, name, self._max_items)
        slots = evaluation_slots(run.settings.run.max_concurrent)
        limits = replace(run.settings.run.limits, max_concurrent=slots)
        specs = [spec for group in plan for spec in group.rollouts]
        try:
            await Runner(run.world, self._store, limits).run(specs)
        except RunFailed as error:
            logger.warning("evaluation of version %d: %s", version, error)
            self.latest = f"version {version}: failed"
            return
        estimates = await self._env.evaluate([self._store.group(spec) for spec in plan])
        report = run.folder.path / f"evaluation-{version}.json"
        write_report(report, estimates)
        self.latest = f"version {version}: {_shown(estimates)}"


def evaluation_slots(max_concurrent: int) -> int:
    """Return how many rollouts of an evaluation run beside those of training."""
    return max(1, max_concurrent // 4)


def _shown(estimates: dict[str, Estimate]) -> str:
    return ", ".join(f"{name} {estimate}" for name, estimate in estimates.items())
