"""The wire formats of vLLM: its token endpoint, its completions with token prompts, an older custom server.

vLLM takes sampling defaults from the model's folder, so each parameter is sent, those we have no use for too.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from inference.answer_checks import finish_reason, only, present, same_ids
from inference.engine import Generation
from trajectories.errors import ModelError
from trajectories.tokens import raw_json
from trajectories.turn import LogprobsKind, PolicySpan, SamplingParams


def sampling_fields(sampling: SamplingParams, stop_ids: Sequence[int]) -> dict[str, Any]:
    """Return sampling parameters as vLLM names them."""
    return {
        "n": 1,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": sampling.seed,
        "stop": sampling.stop,
        "stop_token_ids": stop_ids,
        "logprobs": 0,
    }


SCORING = sampling_fields(SamplingParams(max_tokens=1, temperature=0), ()) | {"prompt_logprobs": 0}


class _TokenLogprob(msgspec.Struct):
    token_id: int
    logprob: float | None


class _Content(msgspec.Struct):
    content: list[_TokenLogprob]


class _Span(msgspec.Struct):
    version: str
    start: int
    end: int


class _TokenChoice(msgspec.Struct):
    token_ids: list[int]
    finish_reason: str | None
    logprobs: _Content | None = None
    weight_versions: list[_Span] | None = None


class _PromptLogprob(msgspec.Struct):
    logprob: float


_PromptLogprobs = list[dict[str, _PromptLogprob] | None]


class _TokenAnswer(msgspec.Struct):
    choices: list[_TokenChoice]
    prompt_logprobs: _PromptLogprobs | None = None


class VllmGenerate:
    """``/inference/v1/generate`` of vLLM started with ``--enable-scale-out``."""

    path = "/inference/v1/generate"
    logprobs_kind: LogprobsKind = "raw"

    def ask(
        self, model: str, prompt_ids: Sequence[int], sampling: SamplingParams, stop_ids: Sequence[int]
    ) -> bytes:
        """See `WireFormat.ask`."""
        return _token_request(model, prompt_ids, sampling_fields(sampling, stop_ids))

    def read(self, body: bytes) -> Generation:
        """See `WireFormat.read`."""
        choice = only(msgspec.json.decode(body, type=_TokenAnswer).choices)
        scored = choice.logprobs.content if choice.logprobs else []
        same_ids(choice.token_ids, [token.token_id for token in scored])
        return Generation(
            choice.token_ids,
            present([token.logprob for token in scored]),
            finish_reason(choice.finish_reason),
            [PolicySpan(span.version, span.start, span.end) for span in choice.weight_versions or []],
        )

    def ask_scores(self, model: str, token_ids: Sequence[int]) -> bytes:
        """See `WireFormat.ask_scores`."""
        return _token_request(model, token_ids, SCORING)

    def read_scores(self, body: bytes, token_ids: Sequence[int]) -> list[float | None]:
        """See `WireFormat.read_scores`."""
        return _scores(msgspec.json.decode(body, type=_TokenAnswer).prompt_logprobs, token_ids)


class _TextLogprobs(msgspec.Struct):
    token_logprobs: list[float | None]


class _TextChoice(msgspec.Struct):
    finish_reason: str | None
    token_ids: list[int] | None = None
    logprobs: _TextLogprobs | None = None
    prompt_logprobs: _PromptLogprobs | None = None


class _TextAnswer(msgspec.Struct):
    choices: list[_TextChoice]


class VllmCompletions:
    """``/v1/completions`` of vLLM, with ids for a prompt and ids asked back."""

    path = "/v1/completions"
    logprobs_kind: LogprobsKind = "raw"

    def ask(
        self, model: str, prompt_ids: Sequence[int], sampling: SamplingParams, stop_ids: Sequence[int]
    ) -> bytes:
        """See `WireFormat.ask`."""
        return _text_request(model, prompt_ids, sampling_fields(sampling, stop_ids))

    def read(self, body: bytes) -> Generation:
        """See `WireFormat.read`."""
        choice = only(msgspec.json.decode(body, type=_TextAnswer).choices)
        if choice.token_ids is None:
            raise ModelError("engine sent no token_ids; is its vLLM older than 0.10.2?")
        logprobs = present(choice.logprobs.token_logprobs if choice.logprobs else None)
        return Generation(choice.token_ids, logprobs, finish_reason(choice.finish_reason))

    def ask_scores(self, model: str, token_ids: Sequence[int]) -> bytes:
        """See `WireFormat.ask_scores`."""
        return _text_request(model, token_ids, SCORING)

    def read_scores(self, body: bytes, token_ids: Sequence[int]) -> list[float | None]:
        """See `WireFormat.read_scores`."""
        return _scores(only(msgspec.json.decode(body, type=_TextAnswer).choices).prompt_logprobs, token_ids)


class _CustomAnswer(msgspec.Struct):
    logprobs: list[list[dict[int, float | None]]]
    finish_reasons: list[str | None]


class VllmCustom:
    """``/generate`` of the custom vLLM server that older trainers start; it can't score."""

    path = "/generate"
    logprobs_kind: LogprobsKind = "raw"

    def ask(
        self, model: str, prompt_ids: Sequence[int], sampling: SamplingParams, stop_ids: Sequence[int]
    ) -> bytes:
        """See `WireFormat.ask`."""
        prompt = {"prompt_token_ids": raw_json(prompt_ids)}
        return msgspec.json.encode({"prompt": prompt} | sampling_fields(sampling, stop_ids))

    def read(self, body: bytes) -> Generation:
        """See `WireFormat.read`."""
        answer = msgspec.json.decode(body, type=_CustomAnswer)
        positions, ended = only(answer.logprobs), only(answer.finish_reasons)
        sampled = [only(list(position.items())) for position in positions]
        ids = [token_id for token_id, _ in sampled]
        return Generation(ids, present([logprob for _, logprob in sampled]), finish_reason(ended))

    def ask_scores(self, model: str, token_ids: Sequence[int]) -> bytes:
        """Refuse: the server has no prompt logprobs."""
        raise ModelError("this server can't score; a newer vLLM can", retryable=False)

    def read_scores(self, body: bytes, token_ids: Sequence[int]) -> list[float | None]:
        """Refuse: nothing was asked."""
        raise ModelError("this server can't score", retryable=False)


def _token_request(model: str, ids: Sequence[int], sampling: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"model": model, "token_ids": raw_json(ids), "sampling_params": sampling})


def _text_request(model: str, ids: Sequence[int], sampling: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"model": model, "prompt": raw_json(ids), "return_token_ids": True} | sampling)


def _scores(prompt_logprobs: _PromptLogprobs | None, token_ids: Sequence[int]) -> list[float | None]:
    """Take each id's own logprob out of vLLM's prompt logprobs, which hold the likeliest ids too."""
    if prompt_logprobs is None or len(prompt_logprobs) != len(token_ids):
        sent = "no" if prompt_logprobs is None else len(prompt_logprobs)
        raise ModelError(f"engine sent {sent} prompt logprobs for {len(token_ids)} ids")
    own = [
        at.get(str(token_id)) if at else None for at, token_id in zip(prompt_logprobs, token_ids, strict=True)
    ]
    return [None, *present([logprob.logprob if logprob else None for logprob in own[1:]])]
