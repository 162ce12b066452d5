"""Rows and groups for tests of training."""

import random
from zlib import crc32

from rollouts.api.scored_group import ScoredGroup, ScoredRollout
from tests.inference.engines.tiny_model import VOCABULARY
from trainers.batches import Lease
from trainers.training_rows import TrainingRow
from trajectories.rows import TokenRow
from trajectories.trajectory import StopReason
from trajectories.turn import PolicySpan

PROMPT = [5, 6, 7, 8]


def token_row(
    seed: int, *, prompt: list[int] = PROMPT, outputs: int = 2, version: str | None = "0"
) -> TokenRow:
    """A row of turns of two to five sampled ids, each followed by ids of the environment."""
    draws = random.Random(seed)
    row = TokenRow("start")
    _extend(row, [*prompt, draws.randrange(VOCABULARY)], sampled=False, draws=draws)
    for _ in range(outputs):
        ids = [draws.randrange(VOCABULARY) for _ in range(draws.randint(2, 5))]
        if version is not None:
            start = len(row.token_ids)
            row.policy_versions.append(PolicySpan(version, start, start + len(ids)))
        _extend(row, ids, sampled=True, draws=draws)
        _extend(row, [draws.randrange(VOCABULARY) for _ in range(3)], sampled=False, draws=draws)
    return row


def _extend(row: TokenRow, ids: list[int], *, sampled: bool, draws: random.Random) -> None:
    row.token_ids.extend(ids)
    row.loss_mask.extend([int(sampled)] * len(ids))
    row.logprobs.extend([-draws.uniform(3, 6) if sampled else None for _ in ids])
    row.turn_index.extend([0] * len(ids))


def training_row(seed: int, advantage: float, weight: float = 1.0, **options) -> TrainingRow:
    row = token_row(seed, **options)
    return TrainingRow(row, "g", f"t{seed}", 0.0, advantage, weight, StopReason.COMPLETED)


def scored_group(key: str, rewards: list[float], *, version: str | None = "0") -> ScoredGroup:
    rollouts = [
        ScoredRollout(f"{key}/{i}", reward, [token_row(crc32(key.encode()) + i, version=version)])
        for i, reward in enumerate(rewards)
    ]
    return ScoredGroup(key, key, key, "test", len(rollouts), rollouts)


class QueuedGroups:
    """A source over a list of groups; what is leased and not acknowledged comes again on a restart."""

    def __init__(self, groups: list[ScoredGroup]):
        self.waiting = list(groups)
        self.leased = []
        self.acked: list[str] = []
        self.published: list[tuple[int, bool]] = []

    async def lease(self, groups: int):
        taken, self.waiting = self.waiting[:groups], self.waiting[groups:]
        if not taken:
            raise AssertionError("no groups left")
        lease = Lease(str(len(self.leased)), taken)
        self.leased.append(lease)
        return lease

    async def ack(self, lease) -> None:
        self.leased.remove(lease)
        self.acked += [group.key for group in lease.groups]

    async def publish(self, policy_version: int, *, updating: bool) -> None:
        self.published.append((policy_version, updating))

    def restart(self) -> None:
        """Deliver again, first, what was leased and not acknowledged."""
        self.waiting = [group for lease in self.leased for group in lease.groups] + self.waiting
        self.leased = []
