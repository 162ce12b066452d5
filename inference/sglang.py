"""The wire format of SGLang's ``/generate``.

SGLang reports logprobs after temperature but before truncation. At temperature 1 and top-p 1 they are the
model's own, which its prompt logprobs always are.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from inference.answer_checks import finish_reason, only, present, same_ids
from inference.engine import Generation
from trajectories.errors import ModelError
from trajectories.tokens import raw_json
from trajectories.turn import LogprobsKind, PolicySpan, SamplingParams

_TokenLogprob = tuple[float | None, int, Any]
"""Logprob, id, text or None."""


class _FinishReason(msgspec.Struct):
    type: str


class _Meta(msgspec.Struct):
    finish_reason: _FinishReason | None
    output_token_logprobs: list[_TokenLogprob] | None = None
    input_token_logprobs: list[_TokenLogprob] | None = None
    weight_version: str | None = None


class _Answer(msgspec.Struct):
    meta_info: _Meta
    output_ids: list[int] | None = None


class SglangGenerate:
    """``/generate`` of SGLang, as it is or behind a host that wraps its body in a JSON string once more."""

    path = "/generate"
    logprobs_kind: LogprobsKind = "processed"

    def ask(
        self, model: str, prompt_ids: Sequence[int], sampling: SamplingParams, stop_ids: Sequence[int]
    ) -> bytes:
        """See `WireFormat.ask`."""
        params = {
            "n": 1,
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "stop": sampling.stop,
            "stop_token_ids": stop_ids,
            "no_stop_trim": True,
            "skip_special_tokens": False,
        }
        if sampling.seed is not None:
            params["sampling_seed"] = sampling.seed
        return _request(prompt_ids, params)

    def read(self, body: bytes) -> Generation:
        """See `WireFormat.read`."""
        answer = _decode(body)
        meta = answer.meta_info
        scored = meta.output_token_logprobs
        if scored is None:
            raise ModelError("engine sent no logprobs")
        ids = [token_id for _, token_id, _ in scored]
        same_ids(answer.output_ids if answer.output_ids is not None else ids, ids)
        spans = [PolicySpan(meta.weight_version, 0, len(ids))] if meta.weight_version else []
        ended = finish_reason(meta.finish_reason.type if meta.finish_reason else None)
        return Generation(ids, present([logprob for logprob, _, _ in scored]), ended, spans)

    def ask_scores(self, model: str, token_ids: Sequence[int]) -> bytes:
        """See `WireFormat.ask_scores`."""
        return _request(token_ids, {"max_new_tokens": 0, "temperature": 0.0}, logprob_start_len=0)

    def read_scores(self, body: bytes, token_ids: Sequence[int]) -> list[float | None]:
        """See `WireFormat.read_scores`."""
        scored = _decode(body).meta_info.input_token_logprobs
        if scored is None:
            raise ModelError("engine sent no prompt logprobs")
        same_ids(token_ids, [token_id for _, token_id, _ in scored])
        return [None, *present([logprob for logprob, _, _ in scored[1:]])]


def _request(ids: Sequence[int], params: dict[str, Any], **more: Any) -> bytes:
    return msgspec.json.encode(
        {"input_ids": raw_json(ids), "sampling_params": params, "return_logprob": True} | more
    )


def _decode(body: bytes) -> _Answer:
    while body.lstrip().startswith(b'"'):
        body = msgspec.json.decode(body, type=str).encode()
    if body.lstrip().startswith(b"["):  # one answer for each of a batch of prompts
        return only(msgspec.json.decode(body, type=list[_Answer]))
    return msgspec.json.decode(body, type=_Answer)
