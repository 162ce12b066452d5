"""Where queued groups are kept: the contract that every store fills.

A call that returned is on the disk: whatever dies afterwards, the next ``load`` shows its effect. A call that
raised or never returned has taken effect whole or not at all, and may be repeated. Once a store is open, all
its calls raise `StoreUnavailable` where it can't be used. One server owns a store at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trajectories.errors import LachesisError

Form = Literal["native", "legacy"]
"""How a body is encoded: ``ScoredGroup`` as MessagePack, or Atropos' scored data as JSON."""

Outcome = Literal["acked", "stale", "dropped"]
"""Why a group left the queue: trained on, too old, or reset."""


class StoreUnavailable(LachesisError):
    """The store could not be read or written: the disk is full, or its server is away."""


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A validated group to be queued."""

    key: str
    env_id: int | None
    """None for legacy pushes that name no environment."""
    form: Form
    rollouts: int
    policy_version: int
    body: bytes


@dataclass(slots=True)
class QueuedGroup:
    """What is known of a queued group without its body; kept in memory, so small."""

    seq: int
    """Grows with the order of arrival and never repeats."""
    env_id: int | None
    form: Form
    rollouts: int
    policy_version: int
    bytes: int
    deliveries: int = 0
    """Times it was handed to a trainer."""
    lease_id: str | None = None
    expires_at: float = 0.0
    """Seconds since the epoch; the group is handed out again after that."""


class GroupStore(ABC):
    """Durable queue storage; knows nothing of order, fairness or time."""

    @abstractmethod
    async def open(self) -> None:
        """Take the store for this process.

        Raises:
            ConfigError: It can't be used, is not durable, or another server has it.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what was asked for and give the store back; idempotent."""

    @abstractmethod
    async def load(self) -> list[QueuedGroup]:
        """Return every group that has not left the queue, in order of arrival."""

    @abstractmethod
    async def append(self, group: NewGroup) -> int | None:
        """Keep a group and return its number.

        Where its key has been seen before nothing is kept: then it is the number of the group that still has
        the key in the queue, or None where that has left it.
        """

    @abstractmethod
    async def record_lease(self, seqs: Sequence[int], lease_id: str, expires_at: float) -> None:
        """Count a delivery of each group and keep who has them, until when."""

    @abstractmethod
    async def move_expiry(self, lease_id: str, seqs: Sequence[int], expires_at: float) -> None:
        """Change when a lease of the groups ends, if they still have it; one in the past gives them back."""

    @abstractmethod
    async def finish(self, seqs: Sequence[int], outcome: Outcome) -> None:
        """Remove groups from the queue; their keys stay known."""

    @abstractmethod
    async def acked(self, lease_id: str) -> int:
        """Count the groups that were acknowledged under a lease."""

    @abstractmethod
    async def bodies(self, seqs: Sequence[int]) -> list[bytes | None]:
        """Read bodies, in the order asked for; None where a group has left the queue."""

    @abstractmethod
    async def put_state(self, name: str, value: bytes) -> None:
        """Keep a small value under a name."""

    @abstractmethod
    async def get_state(self, name: str) -> bytes | None:
        """Return the value kept under a name."""
