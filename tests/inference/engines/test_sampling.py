"""Draws follow the distribution that the sampling parameters describe."""

import random

import pytest

from trajectories.turn import SamplingParams

torch = pytest.importorskip("torch", reason="needs the torch extra")

LOGITS = [2.0, 1.0, 0.5, 0.0, -1.0, -2.0]


def frequencies(sampling: SamplingParams, draws: int = 4_000) -> list[float]:
    from inference.sampling import choose

    generator = random.Random(5)
    ids = choose(torch.tensor([LOGITS]).repeat(draws, 1), [sampling] * draws, [generator] * draws)
    return (torch.bincount(ids, minlength=len(LOGITS)) / draws).tolist()


def expected(temperature: float, kept: int) -> list[float]:
    probabilities = (torch.tensor(LOGITS[:kept]) / temperature).softmax(-1).tolist()
    return probabilities + [0.0] * (len(LOGITS) - kept)


@pytest.mark.parametrize(
    ("sampling", "temperature", "kept"),
    [
        (SamplingParams(), 1.0, 6),
        (SamplingParams(temperature=0.5), 0.5, 6),
        (SamplingParams(temperature=2.0, top_k=3), 2.0, 3),
        (SamplingParams(top_k=100), 1.0, 6),
        (SamplingParams(top_p=0.7), 1.0, 2),
        (SamplingParams(top_p=1e-9), 1.0, 1),
        (SamplingParams(temperature=0), 1.0, 1),
    ],
)
def test_ids_are_drawn_as_often_as_their_probability_says(sampling, temperature, kept):
    measured = frequencies(sampling)

    assert measured == pytest.approx(expected(temperature, kept), abs=0.03)
    assert [share > 0 for share in measured] == [True] * kept + [False] * (len(LOGITS) - kept)


def test_each_row_has_its_own_parameters_and_its_own_draws():
    from inference.sampling import choose

    sampling = [SamplingParams(temperature=0), SamplingParams(), SamplingParams(top_k=1)]
    alone = choose(torch.tensor([LOGITS]), sampling[1:2], [random.Random(9)])
    together = choose(torch.tensor([LOGITS] * 3), sampling, [random.Random(seed) for seed in (1, 9, 2)])

    assert together.tolist() == [0, alone.item(), 0]
