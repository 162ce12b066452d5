"""Checks that every engine's answer passes where it is read, before it is a Generation at all."""

from collections.abc import Sequence
from typing import Literal, TypeVar

from trajectories.errors import ModelError

Choice = TypeVar("Choice")

STAND_IN = -9999.0
"""What OpenAI, and vLLM after it, send in place of a logprob: for one they left out, NaN, minus infinity."""

ROUNDING = 0.5
"""No logprob is above 0, but for rounding: at logits from 16 on, bfloat16 counts in eighths."""


def only(choices: Sequence[Choice]) -> Choice:
    """Return the only choice."""
    if len(choices) != 1:
        raise ModelError(f"engine sent {len(choices)} choices where one was asked for")
    return choices[0]


def finish_reason(said: str | None) -> Literal["stop", "length"]:
    """Return why the output ended, if it ended in a way that leaves it whole."""
    if said == "stop" or said == "length":
        return said
    raise ModelError(f"engine ended its output with finish_reason {said!r}")


def present(logprobs: Sequence[float | None] | None) -> list[float]:
    """Return the logprobs, none of which may be missing."""
    if logprobs is None:
        raise ModelError("engine sent no logprobs")
    given = [logprob for logprob in logprobs if logprob is not None]
    if len(given) != len(logprobs):
        raise ModelError(f"engine left out {len(logprobs) - len(given)} of {len(logprobs)} logprobs")
    return given


def sampled_with(logprobs: Sequence[float]) -> None:
    """Check that ids can have been sampled with these logprobs; neither NaN nor a number put for one can."""
    for position, logprob in enumerate(logprobs):
        if not STAND_IN < logprob < ROUNDING:
            raise ModelError(f"logprob at {position} is {logprob}, which no sampled id can have")


def same_ids(sampled: Sequence[int], scored: Sequence[int]) -> None:
    """Check that logprobs belong to the ids they are sent with."""
    if list(sampled) != list(scored):
        where = next((i for i, (a, b) in enumerate(zip(sampled, scored, strict=False)) if a != b), None)
        found = (
            f"{len(sampled)} ids but {len(scored)} logprobs" if where is None else f"another id at {where}"
        )
        raise ModelError(f"engine sent logprobs that are not of the ids it names: {found}")
