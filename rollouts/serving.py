"""Keeping a trainer fed: enough groups in flight, none too many, none lost.

A group is started when the rollout API has room for it and always runs to its end: where room shrinks, fewer
are started, and none is cancelled, for what it has cost would be lost. It is written down as pushed once the
API has acknowledged it; whatever dies before that, the next process makes or pushes only what is missing.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from msgspec import structs

from environments.gate import Gate
from rollouts.api.scored_group import scored_group
from rollouts.api.sinks import Sink
from rollouts.api.wire import Orders
from rollouts.pushed_log import PushedLog
from rollouts.runner import Runner
from rollouts.specs import GroupSpec, RolloutSpec
from rollouts.store import TrajectoryStore
from trajectories.trajectory import Group, Trajectory

logger = logging.getLogger(__name__)

POLICY_VERSION = "policy_version"
"""Key in a trajectory's metadata: the policy version when its rollout began."""

FIRST_ORDERS = Orders(policy_version=0, updating=False, room=0, heartbeat_s=60.0)


@dataclass(slots=True)
class ServeCounts:
    """What this process has served."""

    in_flight: int = 0
    pushed: int = 0
    withheld: int = 0
    """Groups that were short where full ones are required, or had nothing to train on."""
    recent_rewards: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    """Mean rewards of the last groups."""


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """How a trainer is fed."""

    max_concurrent: int
    """Rollouts in flight."""
    max_groups: int | None
    """Stop after so many groups, those of earlier processes included; None for never."""
    require_full_groups: bool
    """Withhold groups in which a rollout failed."""
    poll_s: float
    """How often the rollout API is asked."""


class Serving:
    """One environment at work for a rollout API."""

    def __init__(
        self,
        environment: str,
        runner: Runner,
        store: TrajectoryStore,
        pushed: PushedLog,
        sink: Sink,
        gate: Gate,
        limits: ServeLimits,
        on_change: Callable[["Serving"], None] = lambda serving: None,
    ):
        self.counts = ServeCounts()
        self.orders = FIRST_ORDERS
        self._environment = environment
        self._runner = runner
        self._store = store
        self._pushed = pushed
        self._sink = sink
        self._gate = gate
        self._limits = limits
        self._on_change = on_change
        self._slots = asyncio.Semaphore(limits.max_concurrent)
        self._news = asyncio.Condition()
        self._ask_now = asyncio.Event()

    async def run(self, plan: AsyncIterator[GroupSpec]) -> None:
        """Serve the plan's groups until it or ``max_groups`` ends.

        Raises:
            RunFailed: Nothing works.
            ApiError: The rollout API refuses what is pushed.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(self._keep_asking())
                await self._start_all(plan)
                asking.cancel()
        except ExceptionGroup as failures:
            raise _first(failures) from None

    async def _start_all(self, plan: AsyncIterator[GroupSpec]) -> None:
        started = 0
        async with asyncio.TaskGroup() as tasks:
            async for group in plan:
                if self._limits.max_groups is not None and started >= self._limits.max_groups:
                    break
                started += 1
                if group.group_id in self._pushed:
                    continue
                await self._room_for(group)
                self.counts.in_flight += 1
                tasks.create_task(self._serve(group))

    async def _room_for(self, group: GroupSpec) -> None:
        """Wait until another group may be started.

        More groups than there are slots for are begun, so that slots which the short rollouts of a group
        leave are taken at once.
        """
        most = math.ceil(2 * self._limits.max_concurrent / len(group.rollouts))
        async with self._news:
            await self._news.wait_for(lambda: self.counts.in_flight < min(self.orders.room, most))

    async def _serve(self, spec: GroupSpec) -> None:
        async with asyncio.TaskGroup() as tasks:
            rollouts = [tasks.create_task(self._rollout(rollout)) for rollout in spec.rollouts]
        trajectories = [rollout.result() for rollout in rollouts]
        group = Group(spec.group_id, spec.item_key, len(spec.rollouts), trajectories)
        await self._hand_over(group)
        self._pushed.add(spec.group_id)
        self.counts.in_flight -= 1
        self._ask_now.set()
        self._on_change(self)

    async def _rollout(self, spec: RolloutSpec) -> Trajectory:
        if self._store.finished(spec.trajectory_id) and (kept := self._store.read(spec.trajectory_id)):
            return kept
        async with self._slots:
            await self._gate.wait()
            return await self._runner.make(spec, {POLICY_VERSION: self.orders.policy_version})

    async def _hand_over(self, group: Group) -> None:
        versions = [t.metadata[POLICY_VERSION] for t in group.trajectories if POLICY_VERSION in t.metadata]
        oldest = min(versions, default=None)
        scored = scored_group(group, self._pushed.run_id, self._environment, oldest)
        if scored is None or (self._limits.require_full_groups and not group.complete):
            self.counts.withheld += 1
            return
        await self._sink.push(scored)
        # It is queued now; the next orders count it themselves.
        self.orders = structs.replace(self.orders, room=self.orders.room - 1)
        self.counts.pushed += 1
        self.counts.recent_rewards.append(sum(group.rewards) / len(group.rewards))

    async def _keep_asking(self) -> None:
        """Ask for orders regularly, and at once when a group has ended."""
        while True:
            self._ask_now.clear()
            self.orders = await self._sink.orders(self.counts.in_flight)
            self._gate.shut(self.orders.updating)
            async with self._news:
                self._news.notify_all()
            self._on_change(self)
            try:
                async with asyncio.timeout(min(self._limits.poll_s, self.orders.heartbeat_s)):
                    await self._ask_now.wait()
            except TimeoutError:
                continue


def _first(failures: ExceptionGroup) -> Exception:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
