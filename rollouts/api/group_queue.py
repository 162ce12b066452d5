"""The queue of scored groups: first in, first out, leased until acknowledged.

A group is in exactly one place: waiting, leased, or gone for good. It leaves only by an acknowledgement (or
for being stale), so a trainer that dies with a batch gives it back when its lease ends, with its deliveries
counted: whoever gets a group for the second time can tell.
"""

import asyncio
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rollouts.api.group_store import GroupStore, NewGroup, Outcome, QueuedGroup, StoreUnavailable

Choose = Callable[[Sequence[QueuedGroup]], list[QueuedGroup] | None]


class QueueFull(Exception):
    """No room; the environment tries again later."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a queue."""

    max_groups: int
    """Groups waiting or leased; further pushes are refused until there is room."""
    max_staleness: int | None
    """Most policy versions a group may be behind when it is delivered; None for no bound."""


@dataclass(slots=True)
class Lease:
    """Groups that one trainer has."""

    lease_id: str
    expires_at: float
    groups: list[QueuedGroup]


@dataclass(slots=True)
class Counts:
    """What has happened since the server started."""

    pushed: int = 0
    duplicates: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])
    """Pushes by the reason they were turned away for."""
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    stale: int = 0
    leases_expired: int = 0
    legacy_rows_left_out: int = 0
    """Further rows of a rollout, which the legacy wire has no place for."""

    def refuse(self, reason: str) -> None:
        """Count a push that was turned away."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class GroupQueue:
    """A queue over a store; all calls from one event loop.

    Memory holds some words for each group in the queue and no bodies.
    """

    def __init__(self, store: GroupStore, limits: QueueLimits, clock: Callable[[], float] = time.time):
        self.limits = limits
        self.counts = Counts()
        self._store = store
        self._clock = clock
        self._waiting: list[QueuedGroup] = []
        self._leases: dict[str, Lease] = {}
        self._acknowledging: dict[str, asyncio.Future[int]] = {}
        self._known: set[int] = set()
        """Numbers of the groups in the queue."""
        self._policy_version = 0
        self._arriving = 0
        self._bytes = 0
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Take up where the last server stopped, with the leases it gave out."""
        for group in await self._store.load():
            self._bytes += group.bytes
            self._known.add(group.seq)
            if group.lease_id is None:
                self._waiting.append(group)
                continue
            lease = self._leases.setdefault(group.lease_id, Lease(group.lease_id, group.expires_at, []))
            lease.groups.append(group)
        self._return_expired()

    @property
    def waiting(self) -> Sequence[QueuedGroup]:
        """Groups to be handed out, oldest first."""
        self._return_expired()
        return self._waiting

    @property
    def leased(self) -> int:
        """Groups that trainers have."""
        self._return_expired()
        return sum(len(lease.groups) for lease in self._leases.values())

    @property
    def free(self) -> int:
        """Groups there is room for."""
        return self.limits.max_groups - len(self._waiting) - self.leased - self._arriving

    @property
    def size_bytes(self) -> int:
        """Size of all bodies."""
        return self._bytes

    async def push(self, group: NewGroup) -> bool:
        """Queue a group; False where its key was pushed before. It is on the disk once this returns.

        A push that seemed to fail may have reached the store all the same; the next one of its key queues it.

        Raises:
            QueueFull: There is no room.
            StoreUnavailable: Like all that the queue does; it may be asked for again.
        """
        if self.free < 1:
            raise QueueFull(f"the queue holds {self.limits.max_groups} groups; push again later")
        self._arriving += 1
        try:
            seq = await self._store.append(group)
        finally:
            self._arriving -= 1
        if seq is None or seq in self._known:
            self.counts.duplicates += 1
            return False
        size = len(group.body)
        self._known.add(seq)
        self._put_back(
            [QueuedGroup(seq, group.env_id, group.form, group.rollouts, group.policy_version, size)]
        )
        self._bytes += size
        self.counts.pushed += 1
        return True

    async def lease(self, lease_id: str, choose: Choose, lease_s: float) -> Lease | None:
        """Hand out the groups that ``choose`` takes; None where it takes none.

        Asking again with the id of a lease that still runs gives the same groups: an answer that was lost on
        its way loses no time.
        """
        await self.drop_stale(self._policy_version)
        if lease_id in self._leases:
            return self._leases[lease_id]
        chosen = choose(self._waiting)
        if not chosen:
            return None
        lease = Lease(lease_id, self._clock() + lease_s, chosen)
        self._hold(lease)
        try:
            await self._store.record_lease([group.seq for group in chosen], lease_id, lease.expires_at)
        except BaseException:
            self._give_back(lease)
            raise
        return lease

    def time_left(self, lease: Lease) -> float:
        """Return the seconds until a lease ends."""
        return max(lease.expires_at - self._clock(), 0.0)

    async def bodies(self, lease: Lease) -> list[bytes]:
        """Read the bodies of the groups of a lease.

        Raises:
            StoreUnavailable: Also where the store no longer has some of the groups, because it was cut off
                after it had taken them out: the queue has forgotten them now, and the rest waits again.
        """
        found = await self._store.bodies([group.seq for group in lease.groups])
        bodies = [body for body in found if body is not None]
        if len(bodies) == len(found):
            return bodies
        self._forget([group for group, body in zip(lease.groups, found, strict=True) if body is None])
        lease.groups = [group for group in lease.groups if group.seq in self._known]
        await self.release(lease.lease_id)
        raise StoreUnavailable(f"{len(found) - len(bodies)} groups of the batch have left the store")

    async def ack(self, lease_id: str) -> int:
        """Take the groups of a lease out for good; returns how many, 0 where the lease had ended before.

        Acknowledging once more says the same: an answer that was lost on its way misleads nobody.
        """
        self._return_expired()
        if lease := self._leases.pop(lease_id, None):
            self._acknowledging[lease_id] = asyncio.ensure_future(self._ack(lease))
        if lease_id in self._acknowledging:
            return await asyncio.shield(self._acknowledging[lease_id])
        return await self._store.acked(lease_id)

    async def extend(self, lease_id: str, lease_s: float) -> bool:
        """Move the end of a lease to ``lease_s`` from now; False where it has ended."""
        self._return_expired()
        lease = self._leases.get(lease_id)
        if lease is None:
            return False
        lease.expires_at = self._clock() + lease_s
        seqs = [group.seq for group in lease.groups]
        await self._store.move_expiry(lease_id, seqs, lease.expires_at)
        return True

    async def release(self, lease_id: str) -> bool:
        """End a lease now; its groups are handed out again. False where it has ended."""
        self._return_expired()
        lease = self._leases.get(lease_id)
        if lease is None:
            return False
        self._give_back(lease)
        await self._store.move_expiry(lease_id, [group.seq for group in lease.groups], 0.0)
        return True

    async def drop_stale(self, policy_version: int) -> int:
        """Take note of the trainer's policy version and remove waiting groups too far behind it."""
        self._policy_version = policy_version
        self._return_expired()
        if self.limits.max_staleness is None:
            return 0
        oldest = policy_version - self.limits.max_staleness
        stale = [group for group in self._waiting if group.policy_version < oldest]
        if stale:
            self._waiting = [group for group in self._waiting if group.policy_version >= oldest]
            await self._drop(stale, "stale")
            self.counts.stale += len(stale)
        return len(stale)

    async def clear(self) -> None:
        """Remove every group, leased ones too."""
        leases = list(self._leases.values())
        groups = self._waiting + [group for lease in leases for group in lease.groups]
        self._waiting = []
        self._leases.clear()
        await self._drop(groups, "dropped")

    async def changed(self) -> None:
        """Wait until a group arrives or comes back, or a lease may have ended."""
        ends = min((lease.expires_at for lease in self._leases.values()), default=float("inf"))
        try:
            async with asyncio.timeout(min(max(ends - self._clock(), 0.0) + 0.01, 3600.0)):
                await self._changed.wait()
        except TimeoutError:
            self._return_expired()

    def wake(self) -> None:
        """Let everyone who waits in ``changed`` look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _ack(self, lease: Lease) -> int:
        try:
            await self._finish(lease.groups, "acked")
        except BaseException:
            self._leases[lease.lease_id] = lease
            raise
        finally:
            del self._acknowledging[lease.lease_id]
        self.counts.acked += len(lease.groups)
        return len(lease.groups)

    def _hold(self, lease: Lease) -> None:
        held = {group.seq for group in lease.groups}
        self._waiting = [group for group in self._waiting if group.seq not in held]
        self._leases[lease.lease_id] = lease
        for group in lease.groups:
            self.counts.delivered += 1
            self.counts.redelivered += group.deliveries > 0
            group.deliveries += 1

    def _return_expired(self) -> None:
        now = self._clock()
        for lease in [lease for lease in self._leases.values() if lease.expires_at <= now]:
            self._give_back(lease)
            self.counts.leases_expired += 1

    def _give_back(self, lease: Lease) -> None:
        if self._leases.pop(lease.lease_id, None) is not None:
            self._put_back(lease.groups)

    def _put_back(self, groups: list[QueuedGroup]) -> None:
        for group in groups:
            insort(self._waiting, group, key=lambda other: other.seq)
        self.wake()

    async def _drop(self, groups: list[QueuedGroup], outcome: Outcome) -> None:
        try:
            await self._finish(groups, outcome)
        except BaseException:
            self._put_back(groups)
            raise

    async def _finish(self, groups: Sequence[QueuedGroup], outcome: Outcome) -> None:
        await self._store.finish([group.seq for group in groups], outcome)
        self._forget(groups)

    def _forget(self, groups: Sequence[QueuedGroup]) -> None:
        for group in groups:
            if group.seq in self._known:
                self._known.remove(group.seq)
                self._bytes -= group.bytes
