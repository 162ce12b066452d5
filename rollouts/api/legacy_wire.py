"""Atropos' scored data (its package's version 0.4 is the specification) and how it maps to a scored group.

Rows are parallel lists over the sequences of a group. Masks hold -100 where nothing is trained and the token
id elsewhere; logprobs hold 1.0, which no logprob can be, at positions that were not sampled. Both stand for
"none" on this wire alone and become a loss mask and None where a group leaves by the native routes.
"""

from collections.abc import Sized
from typing import Any

import msgspec

from rollouts.api.group_store import QueuedGroup
from rollouts.api.scored_group import BadGroup, ScoredGroup, ScoredRollout, check_ids
from trajectories.rows import TokenRow

UNTRAINED = -100
NOT_SAMPLED = 1.0

EXTRAS = (
    "advantages",
    "ref_logprobs",
    "messages",
    "generation_params",
    "overrides",
    "group_overrides",
    "images",
    "distill_token_ids",
    "distill_logprobs",
)
"""Fields that have no place in a scored group and travel as they came."""


class ScoredData(msgspec.Struct):
    """A group of S sequences."""

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: list[list[float]] | None = None
    ref_logprobs: list[list[float]] | None = None
    messages: list[list[dict[str, Any]]] | None = None
    generation_params: dict[str, Any] | None = None
    inference_logprobs: list[list[float]] | None = None
    overrides: list[dict[str, Any]] | None = None
    group_overrides: dict[str, Any] | None = None
    images: Any = None
    env_id: int | None = None
    distill_token_ids: list[list[list[int]]] | None = None
    distill_logprobs: list[list[list[float]]] | None = None


def check_scored_data(data: ScoredData) -> None:
    """Check all that the types don't say.

    Raises:
        BadGroup: Something can't be trained on.
    """
    if not data.tokens:
        raise BadGroup("tokens: is empty")
    count = len(data.tokens)
    for name in ("masks", "scores", "inference_logprobs", "ref_logprobs", "advantages"):
        _check_count(name, getattr(data, name), count)
    _check_count("messages", data.messages or None, count)  # Atropos sends an empty list for none
    _check_count("overrides", data.overrides or None, count)
    for index, tokens in enumerate(data.tokens):
        if not tokens:
            raise BadGroup(f"tokens[{index}]: is empty")
        check_ids(tokens, f"tokens[{index}]")
        for name in ("masks", "inference_logprobs", "ref_logprobs"):
            values = getattr(data, name)
            if values is not None and len(values[index]) != len(tokens):
                raise BadGroup(f"{name}[{index}]: has {len(values[index])} entries for {len(tokens)} tokens")
    for conversation in data.messages or ():
        if not all("role" in message and "content" in message for message in conversation):
            raise BadGroup("messages: every message must have 'role' and 'content'")


def _check_count(name: str, values: Sized | None, count: int) -> None:
    if values is not None and len(values) != count:
        raise BadGroup(f"{name}: has {len(values)} entries for {count} token sequences")


def to_native(body: bytes, queued: QueuedGroup) -> bytes:
    """Translate a queued legacy body to a scored group, as MessagePack."""
    data = msgspec.json.decode(body, type=ScoredData)
    name = f"legacy-{queued.seq}"
    rollouts = scored_rollouts(data, name)
    extras = {field: value for field in EXTRAS if (value := getattr(data, field)) is not None}
    group = ScoredGroup(
        key=name,
        group_id=name,
        item_key=name,
        environment=f"env {queued.env_id}",
        size=len(rollouts),
        rollouts=rollouts,
        extras=extras,
    )
    return msgspec.msgpack.encode(group)


def scored_rollouts(data: ScoredData, group: str) -> list[ScoredRollout]:
    """Translate the sequences of a group, which has no name on this wire."""
    return [
        ScoredRollout(f"{group}/{index}", score, [_row(data, index)])
        for index, score in enumerate(data.scores)
    ]


def scored_data(group: ScoredGroup, env_id: int | None) -> tuple[ScoredData, int]:
    """Translate a scored group; also return how many rows were left out.

    The wire has one sequence a rollout: of a rollout with several rows the first goes out. Sending the others
    as sequences of their own would weigh such rollouts more and change the size of the group.
    """
    rows = [rollout.rows[0] for rollout in group.rollouts]
    logprobs = [_sampled_logprobs(row) for row in rows]
    known = [given for given in logprobs if given is not None]
    data = ScoredData(
        tokens=[row.token_ids for row in rows],
        masks=[_mask(row) for row in rows],
        scores=[rollout.reward for rollout in group.rollouts],
        inference_logprobs=known if len(known) == len(rows) else None,
        env_id=env_id,
    )
    return data, sum(len(rollout.rows) - 1 for rollout in group.rollouts)


def to_legacy(body: bytes, env_id: int | None) -> tuple[bytes, int]:
    """Translate a queued native body to scored data, as JSON; also return how many rows were left out."""
    data, left_out = scored_data(msgspec.msgpack.decode(body, type=ScoredGroup), env_id)
    return msgspec.json.encode(data), left_out


def _mask(row: TokenRow) -> list[int]:
    pairs = zip(row.token_ids, row.loss_mask, strict=True)
    return [token if trained else UNTRAINED for token, trained in pairs]


def _row(data: ScoredData, index: int) -> TokenRow:
    mask = [int(entry != UNTRAINED) for entry in data.masks[index]]
    mask[0] = 0  # nothing stands before it that could predict it; Atropos' trainers shift it away
    count = len(mask)
    logprobs: list[float | None] = [None] * count
    if data.inference_logprobs is not None:
        given = data.inference_logprobs[index]
        logprobs = [
            value if trained and value != NOT_SAMPLED else None
            for value, trained in zip(given, mask, strict=True)
        ]
    return TokenRow("start", data.tokens[index], mask, logprobs, [0] * count)


def _sampled_logprobs(row: TokenRow) -> list[float] | None:
    """Return logprobs with 1.0 at positions that were not sampled; None where a sampled one is not known."""
    filled: list[float] = []
    for value, trained in zip(row.logprobs, row.loss_mask, strict=True):
        if trained and value is None:
            return None
        filled.append(value if trained and value is not None else NOT_SAMPLED)
    return filled
