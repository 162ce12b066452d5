"""Which groups a step trains: fresh, and not all of one reward. What is left out is counted, never silent."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from rollouts.api.scored_group import ScoredGroup
from trainers.grpo_config import GrpoConfig
from trainers.training_rows import TrainingRow, rows_of_scored

REMEMBERED_GROUPS = 100_000
"""Keys of trained groups that are kept, the newest; a redelivery comes soon after the first delivery."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Groups held until they are acknowledged; else they are delivered again when the lease ends."""

    lease_id: str
    groups: list[ScoredGroup]


class GroupSource(Protocol):
    """Where scored groups come from."""

    async def lease(self, groups: int) -> Lease:
        """Wait for that many groups."""
        ...

    async def ack(self, lease: Lease) -> None:
        """Give up the claim to see these groups again."""
        ...

    async def publish(self, policy_version: int, *, updating: bool) -> None:
        """Tell environments the newest policy, and whether its weights are still on their way."""
        ...


@dataclass(slots=True)
class Batch:
    """What one step trains."""

    rows: list[TrainingRow] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    """Of all fresh groups, those of equal rewards included."""
    staleness: list[int] = field(default_factory=list)
    """Policy versions that each fresh group was behind."""
    keys: list[str] = field(default_factory=list)
    groups: int = 0
    """Groups that are trained."""
    zero_variance: int = 0
    """Groups of equal rewards."""
    stale: int = 0
    """Groups left out because they were too old."""
    repeated: int = 0
    """Groups left out because they had been trained before a crash or a lost acknowledgement."""
    unversioned: int = 0
    """Groups whose engine named no version of this trainer; they count as fresh."""


class TrainedGroups:
    """Keys of groups that were trained: what is delivered twice is trained once."""

    def __init__(self, keys: Iterable[str] = ()):
        self._keys = OrderedDict.fromkeys(keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, keys: Iterable[str]) -> None:
        """Remember keys; beyond `REMEMBERED_GROUPS` the oldest are forgotten."""
        self._keys.update(OrderedDict.fromkeys(keys))
        while len(self._keys) > REMEMBERED_GROUPS:
            self._keys.popitem(last=False)

    def to_list(self) -> list[str]:
        """Return the keys, the oldest first."""
        return list(self._keys)


async def collect(
    source: GroupSource, config: GrpoConfig, policy_version: int, trained: TrainedGroups
) -> tuple[Batch, list[Lease]]:
    """Take groups until a step has as many as it trains; returns them with the leases they are held by."""
    batch, leases = Batch(), []
    wanted = config.groups_per_step
    while wanted:
        lease = await source.lease(wanted)
        leases.append(lease)
        for group in lease.groups:
            wanted -= _take(batch, group, config, policy_version, trained)
    return batch, leases


def _take(
    batch: Batch, group: ScoredGroup, config: GrpoConfig, policy_version: int, trained: TrainedGroups
) -> bool:
    """Put a group into the batch or count why not; tells whether the step wants one group fewer now."""
    if group.key in trained or group.key in batch.keys:
        batch.repeated += 1
        return False
    batch.keys.append(group.key)
    behind = staleness(group, policy_version)
    batch.unversioned += behind is None
    if config.max_staleness is not None and (behind or 0) > config.max_staleness:
        batch.stale += 1
        return False
    batch.staleness.append(behind or 0)
    rewards = [rollout.reward for rollout in group.rollouts]
    batch.rewards += rewards
    if len(set(rewards)) <= 1:
        batch.zero_variance += 1
        if config.zero_variance == "resample":
            return False
        if config.zero_variance == "drop":
            return True
    batch.groups += 1
    batch.rows += rows_of_scored(group.group_id, group.rollouts)
    return True


def staleness(group: ScoredGroup, policy_version: int) -> int | None:
    """Return how many versions the group's oldest token is behind; None where the engine named none of ours.

    Versions are the trainer's own numbers. A later one than ``policy_version`` was handed out before a crash
    undid it; it counts as fresh, since the ratio corrects for what it really was.
    """
    versions = [span.version for r in group.rollouts for row in r.rows for span in row.policy_versions]
    if not versions or not all(version.isdecimal() for version in versions):
        return None
    return max(0, policy_version - min(map(int, versions)))
