"""Finding out what kind of token server stands behind a URL, without sampling anything.

A route that takes POST answers GET with 405; one that isn't there, with 404.
"""

from collections.abc import Mapping, Sequence

import msgspec

from inference.http_engine import HttpEngine, WireFormat
from inference.sglang import SglangGenerate
from inference.transport import Refused, Transport
from inference.vllm import VllmCompletions, VllmCustom, VllmGenerate
from trajectories.errors import ConfigError
from trajectories.turn import LogprobsKind


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


async def connect(
    base_url: str | Sequence[str],
    *,
    vocab_size: int,
    model: str | None = None,
    context_length: int | None = None,
    logprobs_kind: LogprobsKind | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
    attempts: int = 5,
) -> HttpEngine:
    """Return an engine, not yet started, that speaks the servers' wire format.

    Args:
        base_url: One URL, or those of equal servers, without a path.
        vocab_size: Number of ids the model has; servers don't tell.
        model: Name the servers know it by; None takes the only one they serve.
        context_length: Where the servers don't tell, or less than they allow.
        logprobs_kind: Where the servers are configured otherwise than is usual for them.
        headers: Sent with every request, such as the authorization.
        timeout_s: Deadline of a call, all attempts included.
        attempts: Most tries of one call.

    Raises:
        ConfigError: No such server, servers of different kinds, or a model they don't serve.
    """
    urls = [base_url] if isinstance(base_url, str) else list(base_url)
    transport = Transport(urls, headers=headers)
    await transport.start()
    try:
        wire = await _wire_of(transport)
        served = await _served(transport, model)
    finally:
        await transport.close()
    length = context_length or (served.max_model_len if served else None)
    if length is None:
        raise ConfigError(f"context_length: {urls[0]} does not tell it; set it")
    return HttpEngine(
        urls,
        wire,
        model=served.id if served else model or "unknown",
        vocab_size=vocab_size,
        context_length=length,
        logprobs_kind=logprobs_kind,
        headers=headers,
        timeout_s=timeout_s,
        attempts=attempts,
    )


async def _wire_of(transport: Transport) -> WireFormat:
    for path in ("/get_model_info", "/model_info"):  # SGLang alone has them, a later one only the second
        if await _everywhere(transport, path):
            return SglangGenerate()
    for wire in (VllmGenerate(), VllmCompletions(), VllmCustom()):
        if await _everywhere(transport, wire.path):
            return wire
    urls = ", ".join(replica.url for replica in transport.replicas.all)
    raise ConfigError(f"base_url: {urls} speaks no wire format we know; give the URL without a path")


async def _everywhere(transport: Transport, path: str) -> bool:
    """Tell whether all servers have the route; some having it and some not is an error."""
    answers = await transport.get_every(path)
    have = [not (isinstance(answer, Refused) and answer.status == 404) for _, answer in answers]
    if any(have) and not all(have):
        lacking = next(url for (url, _), has in zip(answers, have, strict=True) if not has)
        raise ConfigError(f"base_url: servers must be of one kind, but {lacking} has no {path}")
    return all(have)


async def _served(transport: Transport, model: str | None) -> _Model | None:
    """Return the model as every server lists it; None where they list none."""
    found: list[_Model] = []
    for url, answer in await transport.get_every("/v1/models"):
        if isinstance(answer, Refused):
            return None
        try:
            listed = msgspec.json.decode(answer, type=_Models).data
        except msgspec.DecodeError as error:
            raise ConfigError(f"base_url: {url}/v1/models can't be read ({error})") from error
        named = [entry for entry in listed if model is None or entry.id == model]
        if not named or (model is None and len(named) > 1):
            names = ", ".join(entry.id for entry in listed)
            raise ConfigError(f"model: {url} serves {names}; name one of them")
        found.append(named[0])
    return min(found, key=lambda entry: entry.max_model_len or 0)
