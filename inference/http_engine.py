"""Token engines behind HTTP: all alike but for their wire format.

The whole prompt is sent as ids with every call, so any server of several may take it: failover changes which
prefix cache is hit and nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec

from inference.engine import Generation, checked
from inference.transport import Refused, Transport
from trajectories.errors import ConfigError, ContextOverflow, ModelError
from trajectories.turn import LogprobsKind, SamplingParams

Answer = TypeVar("Answer")


class WireFormat(Protocol):
    """How one kind of server is asked, and how it answers. The readers may raise ModelError."""

    path: str
    logprobs_kind: LogprobsKind
    """Which distribution's logprobs the server reports unless told otherwise."""

    def ask(
        self, model: str, prompt_ids: Sequence[int], sampling: SamplingParams, stop_ids: Sequence[int]
    ) -> bytes:
        """Return the body that asks for one continuation, every sampling parameter spelled out."""
        ...

    def read(self, body: bytes) -> Generation:
        """Read the answer to `ask`."""
        ...

    def ask_scores(self, model: str, token_ids: Sequence[int]) -> bytes:
        """Return the body that asks for the raw logprobs of ids."""
        ...

    def read_scores(self, body: bytes, token_ids: Sequence[int]) -> list[float | None]:
        """Read the answer to `ask_scores`."""
        ...


class HttpEngine:
    """An `Engine` behind one or several equal servers.

    Args:
        base_url: One URL or several, without a path.
        wire: The servers' wire format; `inference.detect` finds it out.
        model: Name the servers know it by.
        vocab_size: Number of ids the model has.
        context_length: Most tokens that prompt and output may have together.
        logprobs_kind: Where the servers are configured otherwise than is usual for them.
        headers: Sent with every request, such as the authorization.
        timeout_s: Deadline of a call, all attempts included.
        attempts: Most tries of one call.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        wire: WireFormat,
        *,
        model: str,
        vocab_size: int,
        context_length: int,
        logprobs_kind: LogprobsKind | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
        attempts: int = 5,
    ):
        self.wire = wire
        self.vocab_size = vocab_size
        self.transport = Transport(
            [base_url] if isinstance(base_url, str) else base_url,
            headers=headers,
            timeout_s=timeout_s,
            attempts=attempts,
        )
        self._model = model
        self._context_length = context_length
        self._logprobs_kind: LogprobsKind = logprobs_kind or wire.logprobs_kind

    @property
    def model(self) -> str:
        """Name the servers know the model by."""
        return self._model

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and output may have together."""
        return self._context_length

    @property
    def logprobs_kind(self) -> LogprobsKind:
        """Which distribution's logprobs the servers report."""
        return self._logprobs_kind

    async def start(self) -> None:
        """Check that every server is up and speaks the wire format.

        Raises:
            ConfigError: One doesn't.
        """
        await self.transport.start()
        try:
            for url, answer in await self.transport.get_every(self.wire.path):
                if isinstance(answer, Refused) and answer.status in (401, 403):
                    raise ConfigError(f"api_key: {url} refuses it ({answer})")
                if isinstance(answer, Refused) and answer.status == 404:
                    raise ConfigError(
                        f"base_url: {url} has no {self.wire.path}; is it another kind of server?"
                    )
        except BaseException:
            await self.transport.close()
            raise

    async def close(self) -> None:
        """Close every connection; idempotent."""
        await self.transport.close()

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session_id: str,
        stop_ids: Sequence[int] = (),
    ) -> Generation:
        """Sample a continuation; see `Engine.generate`.

        Raises:
            ContextOverflow: The prompt leaves no room for one id.
        """
        room = self._context_length - len(prompt_ids)
        if room < 1:
            raise ContextOverflow(f"prompt of {len(prompt_ids)} ids, context of {self._context_length}")
        bounded = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        body = self.wire.ask(self._model, prompt_ids, bounded, stop_ids)
        generation = self._read(self.wire.read, await self._post(body, session_id))
        return checked(generation, self.vocab_size, bounded)

    async def score(self, token_ids: Sequence[int]) -> list[float | None]:
        """Return each id's raw logprob given those before it; see `Engine.score`.

        Servers take no prompt that leaves no room for an output.
        """
        if len(token_ids) == self._context_length:
            return [*await self.score(token_ids[:-1]), None]
        body = self.wire.ask_scores(self._model, token_ids)
        answer = await self._post(body, session_id="")
        return self._read(lambda text: self.wire.read_scores(text, token_ids), answer)

    async def _post(self, body: bytes, session_id: str) -> bytes:
        try:
            return await self.transport.post(self.wire.path, body, session_id=session_id)
        except Refused as refused:
            if refused.is_context_overflow:
                raise ContextOverflow(str(refused)) from refused
            raise ModelError(f"engine refused the request: {refused}", retryable=False) from refused

    def _read(self, reader: Callable[[bytes], Answer], body: bytes) -> Answer:
        try:
            return reader(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ModelError(f"not an answer of {self.wire.path} ({error}): {body[:200]!r}") from error
