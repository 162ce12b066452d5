"""Choosing the next ids from logits, as each request's sampling parameters say."""

import random
from collections.abc import Sequence

from inference.kv_cache import Tensor
from trajectories.turn import SamplingParams


def choose(logits: Tensor, sampling: Sequence[SamplingParams], draws: Sequence[random.Random]) -> Tensor:
    """Return one id a row; ``logits`` is float32 [requests, vocabulary].

    A row is drawn with one uniform number of its own generator through its cumulated probabilities, so what a
    seed gives does not depend on the rows beside it. Sums are float64: in float32 they drift by more than the
    probability of a rare id.
    """
    import torch

    temperatures = torch.tensor([params.temperature or 1.0 for params in sampling], device=logits.device)
    probabilities = (logits / temperatures[:, None]).softmax(-1, dtype=torch.float64)
    for row, params in zip(probabilities, sampling, strict=True):
        _truncate(row, params)
    cumulated = probabilities.cumsum(-1)
    uniform = torch.tensor([draw.random() for draw in draws], dtype=torch.float64, device=logits.device)
    ids = torch.searchsorted(cumulated, uniform[:, None] * cumulated[:, -1:], right=True)[:, 0]
    greedy = torch.tensor([params.temperature == 0 for params in sampling], device=logits.device)
    return torch.where(greedy, logits.argmax(-1), ids.clamp(max=logits.shape[-1] - 1))


def _truncate(probabilities: Tensor, params: SamplingParams) -> None:
    """Zero what top-k, then top-p, exclude; ties with the last id kept stay."""
    if 0 < params.top_k < len(probabilities):
        probabilities[probabilities < probabilities.topk(params.top_k).values[-1]] = 0
    if params.top_p < 1:
        ordered, _ = probabilities.sort(descending=True)
        mass_before = ordered.cumsum(-1) - ordered
        last_kept = ordered[mass_before < params.top_p * ordered.sum()][-1:]
        probabilities[probabilities < last_kept] = 0
