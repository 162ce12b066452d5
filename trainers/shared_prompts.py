"""What the rows of a pass begin with alike is computed once; here is how far that goes."""

from collections.abc import Iterator, Sequence
from typing import Any

from trajectories.rows import TokenRow

LOOKED_AT = 10
"""A prompt token that a row only looks back at takes less than a tenth of the memory of one that is computed:
an 11th of what autograd keeps for a model of SmolLM2's shape, a 12th where every head has its own keys."""


def shares_prompts(model: Any) -> bool:
    """Tell whether a prompt's cache can be repeated for each row; the states of linear attention can't."""
    from transformers import DynamicCache

    layers = DynamicCache(config=model.config).layers
    return all(hasattr(layer, "batch_repeat_interleave") for layer in layers)


def passes(rows: Sequence[TokenRow], tokens_per_pass: int, *, share: bool) -> Iterator[list[int]]:
    """Split rows into forward passes: yields indices into ``rows``, rows that begin alike together.

    A pass costs at most ``tokens_per_pass``: the prompt its rows share once, their rests padded to the
    longest and, for the keys and values that each row looks back at, a part of the prompt again. One row is a
    pass whatever its length.

    Args:
        rows: In any order.
        tokens_per_pass: In tokens computed.
        share: Whether the model can share a prompt; see `shares_prompts`.
    """
    taken: list[int] = []
    shared = longest = 0
    for index in sorted(range(len(rows)), key=lambda index: rows[index].token_ids):
        row = rows[index]
        if taken:
            shared = min(shared, shared_prompt([rows[taken[0]], row])) if share else 0
            longest = max(longest, row_end(row))
            if shared + (longest - shared + shared // LOOKED_AT) * (len(taken) + 1) > tokens_per_pass:
                yield taken
                taken = []
        if not taken:
            shared, longest = shared_prompt([row]) if share else 0, row_end(row)
        taken.append(index)
    if taken:
        yield taken


def shared_prompt(rows: Sequence[TokenRow]) -> int:
    """Return how many ids all rows begin with that neither sample a token nor predict one."""
    first, last = min(rows, key=lambda row: row.token_ids), max(rows, key=lambda row: row.token_ids)
    bound = min(row.loss_mask.index(1) for row in rows) - 1
    pairs = zip(first.token_ids[:bound], last.token_ids[:bound], strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), bound)


def row_end(row: TokenRow) -> int:
    """Return the length of a row up to its last sampled token; nothing learns from what follows."""
    return len(row.loss_mask) - row.loss_mask[::-1].index(1)
