"""Conversations over ``/v1/chat/completions``, where the server renders prompts and parses tool calls.

The server sees text, so only it knows the tokens. vLLM reports them when asked, and its turns carry ids and
logprobs; other servers give turns without ids, good for evaluation and SFT. Because the server renders the
whole conversation anew, a prompt may fail to extend the last one: its turn says so (`Turn.row_cause`).
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from inference.openai_wire import FINISH_REASONS, ChatAnswer, decode_answer, decode_message, encode_messages
from inference.prompt_echo import PromptEcho
from inference.session import Completion
from inference.transport import Refused, Transport
from trajectories.errors import ConfigError, ContextOverflow, ModelError
from trajectories.messages import Message, ToolSchema
from trajectories.tokens import TokenPrefix
from trajectories.turn import LogprobsKind, RowCause, SamplingParams, Turn

VLLM_FIELDS = {"return_token_ids": True, "min_p": 0.0, "repetition_penalty": 1.0}
"""Asks vLLM for the ids it sees, and overrides the sampling defaults it takes from the model's folder."""


class OpenAIClient:
    """A `ModelClient` for any OpenAI-compatible server.

    Args:
        base_url: One URL or those of equal servers, each up to and including ``/v1``.
        model: Name the server knows it by; None takes the only one it serves.
        api_key: Sent as bearer token.
        logprobs: Whether to ask for logprobs; some servers refuse requests that do.
        logprobs_kind: Which distribution's logprobs the server reports.
        reasoning_field: Name under which the server reads back an assistant's reasoning, such as
            ``reasoning_content``; None sends none back.
        extra_body: Further fields of every request; they win over ours.
        timeout_s: Deadline of a call, all attempts included.
        attempts: Most tries of one call.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        api_key: str | None = None,
        logprobs: bool = True,
        logprobs_kind: LogprobsKind = "raw",
        reasoning_field: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout_s: float = 600.0,
        attempts: int = 5,
    ):
        self.logprobs_kind: LogprobsKind = logprobs_kind
        self.reasoning_field = reasoning_field
        self._model = model
        self._asks_logprobs = logprobs
        self._extra_body = dict(extra_body or {})
        self._is_vllm = False
        urls = [base_url] if isinstance(base_url, str) else base_url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.transport = Transport(urls, headers=headers, timeout_s=timeout_s, attempts=attempts)

    @property
    def model(self) -> str:
        """Name of the model, as the server knows it."""
        return self._model or "unknown until started"

    async def start(self) -> None:
        """Check that every server is up, lets us in and serves the model.

        Raises:
            ConfigError: One doesn't.
        """
        await self.transport.start()
        try:
            for url, answer in await self.transport.get_every("/models"):
                self._check_models(url, answer)
        except BaseException:
            await self.transport.close()
            raise

    def _check_models(self, url: str, answer: bytes | Refused) -> None:
        if isinstance(answer, Refused):
            if answer.status in (401, 403):
                raise ConfigError(f"api_key: {url} refuses it ({answer})")
            if self._model is None:
                raise ConfigError(f"model: {url} does not list its models ({answer}); name one")
            return
        try:
            served = msgspec.json.decode(answer, type=_Models).data
        except msgspec.DecodeError as error:
            raise ConfigError(f"base_url: {url}/models is no OpenAI-compatible answer ({error})") from error
        names = [model.id for model in served]
        if self._model is None and len(names) == 1:
            self._model = names[0]
        if self._model not in names:
            raise ConfigError(f"model: {url} serves {', '.join(names) or 'none'}, not {self._model}")
        self._is_vllm = all(model.owned_by == "vllm" for model in served)

    async def close(self) -> None:
        """Close every connection; idempotent."""
        await self.transport.close()

    @asynccontextmanager
    async def session(
        self, trajectory_id: str, messages: list[Message], tools: list[ToolSchema]
    ) -> AsyncIterator["OpenAISession"]:
        """Open a conversation; see `ModelClient.session`."""
        history = encode_messages(messages, reasoning_field=self.reasoning_field)
        yield OpenAISession(self, trajectory_id, history, self._head(tools))

    def _head(self, tools: list[ToolSchema]) -> bytes:
        """Return the fields that no turn changes, as JSON without the closing brace."""
        fields: dict[str, Any] = {"model": self._model, "n": 1}
        if self._asks_logprobs:
            fields["logprobs"] = True
        if self._is_vllm:
            fields |= VLLM_FIELDS
        if tools:
            fields["tools"] = tools
        return msgspec.json.encode(fields | self._extra_body)[:-1]

    def sampling_fields(self, sampling: SamplingParams) -> dict[str, Any]:
        """Return the sampling parameters as the server reads them, apart from those `extra_body` sets."""
        fields: dict[str, Any] = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if self._is_vllm or sampling.top_k:
            fields["top_k"] = sampling.top_k
        if sampling.seed is not None:
            fields["seed"] = sampling.seed
        if sampling.stop:
            fields["stop"] = sampling.stop
        return {name: value for name, value in fields.items() if name not in self._extra_body}


class OpenAISession:
    """One conversation; its history is kept as the bytes that are sent."""

    def __init__(self, client: OpenAIClient, trajectory_id: str, history: list[bytes], head: bytes):
        self._client = client
        self._trajectory_id = trajectory_id
        self._history = history
        self._head = head
        self._echo = PromptEcho(TokenPrefix())
        """Prompt and output of the last turn, where the server reports ids."""

    def fork(self) -> "OpenAISession":
        """Return an independent session with the same history."""
        child = OpenAISession(self._client, self._trajectory_id, list(self._history), self._head)
        child._echo = self._echo
        return child

    async def extend(self, new_messages: list[Message], sampling: SamplingParams) -> Completion:
        """Send the conversation and take the next message; see `Session.extend`."""
        client = self._client
        new = encode_messages(new_messages, reasoning_field=client.reasoning_field)
        if not self._history and not new:
            raise ConfigError("messages: a conversation needs at least one before the model can answer")
        started = time.perf_counter()
        try:
            body = await client.transport.post(
                "/chat/completions", self._request(new, sampling), session_id=self._trajectory_id
            )
        except Refused as refusal:
            raise _refusal(refusal) from refusal
        shortened, continues = self._echo.cut(body)
        answer = decode_answer(shortened)
        message = decode_message(answer)
        turn = self._turn(answer, message, sampling, continues, time.perf_counter() - started)
        self._history += [*new, *encode_messages([message], reasoning_field=client.reasoning_field)]
        if isinstance(turn.prompt_ids, TokenPrefix) and turn.output_ids is not None:
            self._echo = self._echo.grown(turn.prompt_ids, turn.output_ids, body)
        return Completion(message, turn)

    def _request(self, new: list[bytes], sampling: SamplingParams) -> bytes:
        options = msgspec.json.encode(self._client.sampling_fields(sampling))[1:-1]
        fields = b",".join([self._head, options] if options else [self._head])
        return b"".join([fields, b',"messages":[', b",".join([*self._history, *new]), b"]}"])

    def _turn(
        self, answer: ChatAnswer, message: Message, sampling: SamplingParams, continues: bool, model_s: float
    ) -> Turn:
        logprobs, output_ids = answer.logprobs, answer.choice.token_ids
        prompt_ids, cause = self._prompt(answer.prompt_token_ids, continues)
        if prompt_ids is None or output_ids is None:
            prompt_ids = output_ids = None
        usage = answer.usage
        return Turn(
            message,
            FINISH_REASONS[answer.choice.finish_reason or ""],
            sampling,
            prompt_ids=prompt_ids,
            output_ids=output_ids,
            output_logprobs=logprobs,
            logprobs_kind=None if logprobs is None else self._client.logprobs_kind,
            row_cause=cause,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            model_s=model_s,
        )

    def _prompt(self, ids: list[int] | None, continues: bool) -> tuple[TokenPrefix | None, RowCause | None]:
        """Return the prompt, as a view of the session's ids where it extends them, and why it doesn't.

        Args:
            ids: What the server echoes; where it ``continues``, what follows the ids known already.
            continues: Whether those were cut out.
        """
        known = self._echo.ids
        if ids is None:
            return None, None
        if continues:
            return known.append(ids), None
        if known == ids[: len(known)]:
            return known.append(ids[len(known) :]), None
        return TokenPrefix(ids), "template"


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


def _refusal(refused: Refused) -> Exception:
    if refused.is_context_overflow:
        return ContextOverflow(str(refused))
    return ModelError(f"server refused the request: {refused}", retryable=False)
