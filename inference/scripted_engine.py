"""A token engine that samples what it is told to: for tests of everything above tokens.

Its logprobs are a function of position and id, the same when sampling and when scoring, so that a record
whose logprobs are shifted, padded or belong to another turn does not pass an audit.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inference.engine import Generation, checked
from trajectories.errors import ConfigError
from trajectories.turn import LogprobsKind, PolicySpan, SamplingParams

Sampler = Callable[[Sequence[int]], Sequence[int]]
"""Decides on output ids from the prompt's."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request as the engine received it."""

    session_id: str
    prompt_ids: list[int]
    sampling: SamplingParams
    stop_ids: tuple[int, ...]


class ScriptedEngine:
    """Replays outputs.

    Args:
        script: The outputs of each session in order, an exception being raised at its place; or a function
            that decides on each.
        vocab_size: Ids must be below it.
        context_length: Most tokens that prompt and output may have together.
        policy_version: Reported for every output; None reports none.
    """

    def __init__(
        self,
        script: Sequence[Sequence[int] | Exception] | Sampler,
        *,
        vocab_size: int = 1 << 20,
        context_length: int = 1 << 20,
        policy_version: str | None = None,
    ):
        self._script = script
        self._vocab_size = vocab_size
        self._context_length = context_length
        self._policy_version = policy_version
        self.calls: list[EngineCall] = []
        """Every request, in the order they came."""
        self._positions: Counter[str] = Counter()

    @property
    def model(self) -> str:
        """The name ``scripted``."""
        return "scripted"

    @property
    def context_length(self) -> int:
        """As given."""
        return self._context_length

    @property
    def logprobs_kind(self) -> LogprobsKind:
        """Raw: there is no temperature to apply."""
        return "raw"

    async def start(self) -> None:
        """Do nothing: a script is always ready."""

    async def close(self) -> None:
        """Do nothing: a script holds nothing."""

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session_id: str,
        stop_ids: Sequence[int] = (),
    ) -> Generation:
        """Give the session's next output, cut after the first stop id and at ``max_tokens``.

        Raises:
            ConfigError: The script has no output left.
        """
        position = self._positions[session_id]
        self._positions[session_id] += 1
        self.calls.append(EngineCall(session_id, list(prompt_ids), sampling, tuple(stop_ids)))
        if callable(self._script):
            said = self._script(prompt_ids)
        elif position < len(self._script):
            said = self._script[position]
        else:
            raise ConfigError(f"the script has {len(self._script)} outputs, but one more was asked for")
        if isinstance(said, Exception):
            raise said
        stop_at = next((i for i, token_id in enumerate(said, 1) if token_id in stop_ids), None)
        output = list(said[:stop_at])[: sampling.max_tokens]
        finished = stop_at is not None and len(output) == stop_at
        start = len(prompt_ids)
        logprobs = [scripted_logprob(start + i, token_id) for i, token_id in enumerate(output)]
        spans = [PolicySpan(self._policy_version, 0, len(output))] if self._policy_version else []
        generation = Generation(output, logprobs, "stop" if finished else "length", spans)
        return checked(generation, self._vocab_size, sampling)

    async def score(self, token_ids: Sequence[int]) -> list[float | None]:
        """Return the logprobs that sampling these ids would have reported."""
        return [scripted_logprob(i, token_id) if i else None for i, token_id in enumerate(token_ids)]


def scripted_logprob(position: int, token_id: int) -> float:
    """Return the logprob of an id at a position: never 0, and seldom twice the same."""
    return -(1 + (position * 7919 + token_id * 104729) % 9973) / 1000
