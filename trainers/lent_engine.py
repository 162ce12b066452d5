"""A trainer's own inference as an engine: what it offers is a call, ids in, ids and logprobs out."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inference.answer_checks import present
from inference.engine import Generation, checked
from trajectories.errors import LachesisError, ModelError
from trajectories.turn import LogprobsKind, PolicySpan, SamplingParams


@dataclass(frozen=True, slots=True)
class LentAnswer:
    """What a trainer's inference sent; ids and logprobs are parallel."""

    output_ids: list[int]
    logprobs: Sequence[float | None] | None
    policy_version: str | None = None
    """The oldest that sampled any of them."""
    newest_version: str | None = None
    """The one that sampled the last of them, where the policy changed on the way."""

    def spans(self) -> list[PolicySpan]:
        """Return who sampled what. Where the policy changed is unknown: all but the last are the oldest's."""
        oldest, count = self.policy_version, len(self.output_ids)
        if oldest is None:
            return []
        if self.newest_version in (None, oldest):
            return [PolicySpan(oldest, 0, count)]
        last = max(count - 1, 0)
        return [PolicySpan(oldest, 0, last), PolicySpan(self.newest_version, last, count)]


LentCall = Callable[[list[int], dict[str, Any], str], Awaitable[LentAnswer]]
"""Prompt ids, sampling parameters as vLLM names them, and the session's id."""


@dataclass(frozen=True)
class LentEngine:
    """An `Engine` that the trainer starts, stops and keeps in step with its policy."""

    call: LentCall
    model: str
    vocab_size: int
    context_length: int
    logprobs_kind: LogprobsKind
    seed: str = "seed"
    """What this trainer's inference calls a request's seed."""
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    """Sampling parameters that this trainer's inference wants besides."""

    async def start(self) -> None:
        """Do nothing: it runs."""

    async def close(self) -> None:
        """Do nothing: the trainer closes it."""

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session_id: str,
        stop_ids: Sequence[int] = (),
    ) -> Generation:
        """Sample a continuation; see `Engine.generate`."""
        params = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "repetition_penalty": 1.0,
            "stop_token_ids": list(stop_ids),
            **self.fixed,
        }
        if sampling.seed is not None:
            params[self.seed] = sampling.seed
        try:
            answer = await self.call(list(prompt_ids), params, session_id)
        except LachesisError:
            raise
        except Exception as error:
            raise ModelError(f"the trainer's inference: {type(error).__name__}: {error}") from error
        ids = list(answer.output_ids)
        ended = "stop" if ids and ids[-1] in stop_ids else "length"
        generation = Generation(ids, present(answer.logprobs), ended, answer.spans())
        return checked(generation, self.vocab_size, sampling)

    async def score(self, token_ids: Sequence[int]) -> list[float | None]:
        """Refuse: trainers lend no scoring."""
        raise ModelError("a trainer's inference scores no tokens", retryable=False)
