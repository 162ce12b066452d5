"""The contract of token engines: ids in, ids with logprobs out.

An answer is checked where it enters. A missing or impossible logprob, an id outside the vocabulary or a
policy span outside the output is a failure of the engine (`ModelError`): padding it over would train the
policy on numbers nobody sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from inference.answer_checks import sampled_with
from trajectories.errors import ModelError
from trajectories.turn import LogprobsKind, PolicySpan, SamplingParams


@dataclass(frozen=True, slots=True)
class Generation:
    """One engine answer; ``output_ids`` and ``output_logprobs`` are parallel."""

    output_ids: list[int]
    output_logprobs: list[float]
    finish_reason: Literal["stop", "length"]
    policy_versions: list[PolicySpan] = field(default_factory=list)


class Engine(Protocol):
    """A model behind token ids; safe to share between concurrent sessions."""

    @property
    def model(self) -> str:
        """Name and, where known, revision or content hash of the model."""
        ...

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and output may have together."""
        ...

    @property
    def logprobs_kind(self) -> LogprobsKind:
        """Which distribution's logprobs the engine reports."""
        ...

    async def start(self) -> None:
        """Load or reach the model.

        Raises:
            ConfigError: It can't be; the message names the setting and the fix.
        """
        ...

    async def close(self) -> None:
        """Release what `start` took; idempotent."""
        ...

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session_id: str,
        stop_ids: Sequence[int] = (),
    ) -> Generation:
        """Sample a continuation; a sampled id of ``stop_ids`` ends it and is kept as its last output id.

        Cancelling the call aborts the request on the engine.

        Raises:
            ModelError: The engine failed or its answer is not to be trusted.
            ContextOverflow: The prompt leaves no room for one id.
        """
        ...

    async def score(self, token_ids: Sequence[int]) -> list[float | None]:
        """Return each id's natural-log probability given those before it, raw.

        None for the first, and for the last of as many ids as fill the context where the engine needs room.

        Raises:
            ModelError: The engine failed or can't score.
            ContextOverflow: There are more ids than the context holds.
        """
        ...


def checked(generation: Generation, vocab_size: int, sampling: SamplingParams) -> Generation:
    """Return ``generation`` if it can be trained on.

    Raises:
        ModelError: With what is wrong and where.
    """
    ids, logprobs = generation.output_ids, generation.output_logprobs
    if len(ids) != len(logprobs):
        raise ModelError(f"engine sent {len(ids)} output ids but {len(logprobs)} logprobs")
    if len(ids) > sampling.max_tokens:
        raise ModelError(f"engine sent {len(ids)} output ids, max_tokens is {sampling.max_tokens}")
    for position, token_id in enumerate(ids):
        if not 0 <= token_id < vocab_size:
            raise ModelError(f"output id {token_id} at {position} is outside the vocabulary of {vocab_size}")
    sampled_with(logprobs)
    end = 0
    for span in generation.policy_versions:
        if not end <= span.start <= span.end <= len(ids):
            raise ModelError(f"policy span {span.start} to {span.end} does not fit {len(ids)} output ids")
        end = span.end
    return generation
