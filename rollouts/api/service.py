"""The parts of a running rollout API, opened and closed together, and what needs more than one of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.api.batching import choose
from rollouts.api.group_queue import GroupQueue, Lease, QueueLimits
from rollouts.api.group_store import GroupStore, QueuedGroup, StoreUnavailable
from rollouts.api.policy import PolicyBoard
from rollouts.api.registry import Environment, Registry
from trajectories.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """How the service treats environments and trainers."""

    queue: QueueLimits
    target_groups: int
    """Groups the environments keep ready together, if the trainer's batches don't need more."""
    heartbeat_timeout_s: float
    """An environment that was silent for longer counts as dead."""


class Service:
    """Queue, environments and policy over one store."""

    def __init__(self, store: GroupStore, limits: ServiceLimits):
        self.store = store
        self.limits = limits
        self.queue = GroupQueue(store, limits.queue)
        self.registry = Registry(store, limits.heartbeat_timeout_s)
        self.policy = PolicyBoard(store)
        self.batch_groups = 0
        """Size of the batches the trainer asks for, in groups; 0 until it asked."""
        self.batch_rollouts = 0
        """Likewise on the legacy wire, in rollouts."""
        self.draining = False

    async def open(self) -> None:
        """Open the store and take up where the last server stopped.

        Raises:
            ConfigError: The store can't be used.
        """
        await self.store.open()
        try:
            await self.queue.open()
            await self.registry.open()
            await self.policy.open()
            await self.queue.drop_stale(self.policy.version)
        except StoreUnavailable as error:
            raise ConfigError(f"store: {error}") from error

    async def close(self) -> None:
        """Close the store; idempotent."""
        await self.store.close()

    def drain(self) -> None:
        """Let those who wait for a batch go; from here on nothing new is taken on."""
        self.draining = True
        self.queue.wake()

    async def publish(self, version: int, updating_s: float) -> None:
        """Set the policy version; waiting groups too far behind it are dropped."""
        await self.policy.publish(version, updating_s)
        await self.queue.drop_stale(version)

    async def lease_groups(self, lease_id: str, groups: int, lease_s: float) -> Lease | None:
        """Hand out exactly ``groups`` groups, or None."""
        self.batch_groups = groups

        def take(waiting: Sequence[QueuedGroup]) -> list[QueuedGroup] | None:
            return choose(waiting, groups, lambda group: 1, self.registry.minimums())

        return await self.queue.lease(lease_id, take, lease_s)

    def room(self, environment: Environment) -> int:
        """Return how many groups an environment may have in flight.

        Two batches are kept ready where that is more than the target: with one, the trainer would wait for
        the slowest environment at every step.
        """
        legacy_batch = math.ceil(self.batch_rollouts / environment.group_size)
        wanted = max(self.limits.target_groups, 2 * self.batch_groups, 2 * legacy_batch)
        own = sum(group.env_id == environment.env_id for group in self.queue.waiting)
        return max(math.ceil(wanted * self.registry.share(environment)) - own, 0)
