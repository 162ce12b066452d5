"""A token row as trainers take it that know one prompt and one response.

The prompt ends where the first token was sampled; the response is all that follows, later prompts included,
with a mask. No token is added, left out or put elsewhere.
"""

from dataclasses import dataclass

from trajectories.rows import TokenRow


@dataclass(frozen=True, slots=True)
class PromptResponse:
    """``response_ids``, ``response_mask`` and ``response_logprobs`` are parallel and never empty."""

    prompt_ids: list[int]
    response_ids: list[int]
    """The first one was sampled."""
    response_mask: list[int]
    """1 where the id was sampled, 0 where it was given to the model."""
    response_logprobs: list[float | None] | None
    """Of sampled ids, None at the others; None where the engine did not report all of them."""

    def filled_logprobs(self) -> list[float] | None:
        """Return the logprobs with 0 where nothing was sampled, for trainers whose types know no gaps."""
        if self.response_logprobs is None:
            return None
        return [0.0 if logprob is None else logprob for logprob in self.response_logprobs]


def split(row: TokenRow) -> PromptResponse:
    """Split a row with at least one sampled token."""
    start = row.loss_mask.index(1)
    mask, logprobs = row.loss_mask[start:], row.logprobs[start:]
    known = all(logprob is not None for logprob, sampled in zip(logprobs, mask, strict=True) if sampled)
    return PromptResponse(row.token_ids[:start], row.token_ids[start:], mask, logprobs if known else None)
