"""Scored groups and queued groups for tests."""

from rollouts.api.group_store import NewGroup
from rollouts.api.scored_group import ScoredGroup, ScoredRollout
from trajectories.rows import TokenRow
from trajectories.trajectory import StopReason
from trajectories.turn import PolicySpan


def row_of(sampled: list[int]) -> TokenRow:
    """A row with two prompt ids before the sampled ones."""
    count = len(sampled)
    return TokenRow(
        "start",
        [1, 2, *sampled],
        [0, 0] + [1] * count,
        [None, None, *(-0.25 * (index + 1) for index in range(count))],
        [0] * (count + 2),
        [PolicySpan("3", 2, count + 2)],
    )


def group_of(key: str, rewards: tuple[float, ...] = (1.0, 0.0), rows: int = 1, **changes) -> ScoredGroup:
    rollouts = [
        ScoredRollout(
            f"{key}/{index}",
            reward,
            [row_of([10 + index, 20 + n]) for n in range(rows)],
            StopReason.COMPLETED,
        )
        for index, reward in enumerate(rewards)
    ]
    fields = {"group_id": key, "item_key": key, "environment": "test", "size": len(rewards), **changes}
    return ScoredGroup(key=key, rollouts=rollouts, **fields)


def new_group(key: str, *, env_id: int | None = 0, rollouts: int = 2, version: int = 0, body: bytes = b"b"):
    return NewGroup(key, env_id, "native", rollouts, version, body)
