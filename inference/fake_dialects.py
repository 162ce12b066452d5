"""The wire formats of token servers, seen from the server's side."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for."""

    prompt_ids: list[int]
    max_tokens: int
    temperature: float
    stop_ids: list[int]
    scores: bool
    """Whether the prompt's logprobs are wanted."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the answer says, true or false."""

    ids: list[int]
    logprobs: list[float | None]
    finish_reason: str
    scores: list[float | None] | None
    version: str | None
    choices: int = 1


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server."""

    path: str
    read: Callable[[dict[str, Any]], Asked]
    write: Callable[[Asked, Answered], Any]
    probes: tuple[str, ...] = ("/v1/models",)
    """Paths by which a client finds out what the server is."""


def _read_vllm(prompt_ids: list[int], sampling: dict[str, Any]) -> Asked:
    return Asked(
        prompt_ids,
        sampling["max_tokens"],
        sampling["temperature"],
        list(sampling["stop_token_ids"]),
        sampling.get("prompt_logprobs") is not None,
    )


def _write_generate(asked: Asked, answered: Answered) -> Any:
    content = [
        {"token_id": token_id, "logprob": logprob, "rank": 1, "top_logprobs": []}
        for token_id, logprob in zip(answered.ids, answered.logprobs, strict=False)
    ]
    choice = {
        "index": 0,
        "token_ids": answered.ids,
        "finish_reason": answered.finish_reason,
        "logprobs": {"content": content},
        "weight_versions": [{"version": answered.version, "start": 0, "end": len(answered.ids)}]
        if answered.version
        else None,
    }
    return {"choices": [choice] * answered.choices, "prompt_logprobs": _vllm_scores(asked, answered)}


def _write_completions(asked: Asked, answered: Answered) -> Any:
    choice = {
        "index": 0,
        "text": "",
        "token_ids": answered.ids,
        "finish_reason": answered.finish_reason,
        "logprobs": {"token_logprobs": answered.logprobs, "tokens": ["?"] * len(answered.ids)},
        "prompt_logprobs": _vllm_scores(asked, answered),
    }
    return {"object": "text_completion", "choices": [choice] * answered.choices}


def _vllm_scores(asked: Asked, answered: Answered) -> list[Any] | None:
    """As vLLM sends them: keyed by id, the likeliest id beside the prompt's own."""
    if answered.scores is None:
        return None
    likeliest = {"0": {"logprob": -0.5, "rank": 1}}
    return [
        None if score is None else likeliest | {str(token_id): {"logprob": score, "rank": 2}}
        for token_id, score in zip(asked.prompt_ids, answered.scores, strict=True)
    ]


def _write_custom(asked: Asked, answered: Answered) -> Any:
    positions = [
        {str(token_id): logprob} for token_id, logprob in zip(answered.ids, answered.logprobs, strict=False)
    ]
    return {
        "text": [""],
        "logprobs": [positions] * answered.choices,
        "finish_reasons": [answered.finish_reason] * answered.choices,
    }


def _read_sglang(body: dict[str, Any]) -> Asked:
    sampling = body["sampling_params"]
    return Asked(
        body["input_ids"],
        sampling["max_new_tokens"],
        sampling["temperature"],
        list(sampling.get("stop_token_ids", [])),
        body.get("logprob_start_len") == 0,
    )


def _write_sglang(asked: Asked, answered: Answered) -> Any:
    meta = {
        "finish_reason": {"type": answered.finish_reason},
        "output_token_logprobs": _triples(answered.logprobs, answered.ids) if answered.choices else None,
        "input_token_logprobs": _triples(answered.scores or [], asked.prompt_ids),
        "weight_version": answered.version,
    }
    answer = {"text": "", "output_ids": answered.ids, "meta_info": meta}
    return [answer] * answered.choices if answered.choices > 1 else answer


def _triples(logprobs: Sequence[float | None], ids: list[int]) -> list[Any]:
    return [[logprob, token_id, None] for logprob, token_id in zip(logprobs, ids, strict=False)]


def _write_wrapped(asked: Asked, answered: Answered) -> Any:
    return json.dumps(_write_sglang(asked, answered))


DIALECTS = {
    "vllm_generate": Dialect(
        "/inference/v1/generate",
        lambda body: _read_vllm(body["token_ids"], body["sampling_params"]),
        _write_generate,
    ),
    "vllm_completions": Dialect(
        "/v1/completions", lambda body: _read_vllm(body["prompt"], body), _write_completions
    ),
    "vllm_custom": Dialect(
        "/generate",
        lambda body: _read_vllm(body["prompt"]["prompt_token_ids"], body),
        _write_custom,
        probes=(),
    ),
    "sglang": Dialect("/generate", _read_sglang, _write_sglang, probes=("/v1/models", "/get_model_info")),
    "sglang_wrapped": Dialect(
        "/generate", _read_sglang, _write_wrapped, probes=("/v1/models", "/get_model_info")
    ),
}
"""By name; ``sglang_wrapped`` is a serverless host that sends its body as a JSON string."""
