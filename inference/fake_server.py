"""An HTTP model server on loopback in front of any engine, in every wire format we speak.

For tests and benchmarks of what talks to servers. With a scripted engine it answers at once and always alike,
and on request it drops a logprob, sends an impossible id, hangs up half-way or is busy, as real servers do.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from aiohttp import web

from inference.engine import Engine
from inference.fake_dialects import DIALECTS, Answered, Asked
from trajectories.turn import SamplingParams

Chat = Callable[[dict[str, Any]], dict[str, Any]]
"""Answers the body of a chat completion request."""


class Fault(StrEnum):
    """What the server does wrong with one call."""

    DROPPED_LOGPROB = "dropped_logprob"
    NULL_LOGPROB = "null_logprob"
    NAN_LOGPROB = "nan_logprob"
    STAND_IN_LOGPROB = "stand_in_logprob"
    POSITIVE_LOGPROB = "positive_logprob"
    IMPOSSIBLE_ID = "impossible_id"
    TOO_MANY_IDS = "too_many_ids"
    NO_CHOICE = "no_choice"
    TWO_CHOICES = "two_choices"
    ABORTED = "aborted"
    NOT_JSON = "not_json"
    TOO_DEEP = "too_deep"
    HALF_AN_ANSWER = "half_an_answer"
    BUSY = "busy"
    BROKEN = "broken"
    REFUSED = "refused"
    TOO_LONG = "too_long"
    HANGS = "hangs"


UNREADABLE = {Fault.NOT_JSON: "It works!", Fault.TOO_DEEP: '{"more":' + "[" * 100_000}

STATUSES = {Fault.BUSY: 429, Fault.BROKEN: 500, Fault.REFUSED: 400, Fault.TOO_LONG: 400}


class FakeServer:
    """The server; enter it to start it, and it is gone on exit.

    Args:
        engine: What decides on ids and logprobs.
        dialect: Which of `DIALECTS` it speaks.
        chat: What answers ``/v1/chat/completions``; None leaves that route out.
        model: Name it lists its model by.
        owned_by: What it says it is.
        port: 0 takes a free one.
    """

    def __init__(
        self,
        engine: Engine,
        dialect: str = "vllm_generate",
        *,
        chat: Chat | None = None,
        model: str = "fake",
        owned_by: str = "vllm",
        port: int = 0,
    ):
        self.faults: deque[Fault] = deque()
        """What goes wrong with the calls to come, one each."""
        self.calls: list[dict[str, Any]] = []
        """The bodies received, in order."""
        self.abandoned = asyncio.Event()
        """Set when a client hung up on a call that the server was still working on."""
        self._engine = engine
        self._dialect = DIALECTS[dialect]
        self._chat = chat
        self._model = model
        self._owned_by = owned_by
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Base URL, without a path."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> "FakeServer":
        """Start listening."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post(self._dialect.path, self._generate)
        if self._chat is not None:
            app.router.add_post("/v1/chat/completions", self._complete_chat)
        for path in self._dialect.probes:
            app.router.add_get(path, self._list_models)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and hang up."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _list_models(self, request: web.Request) -> web.Response:
        entry = {"id": self._model, "owned_by": self._owned_by, "max_model_len": self._engine.context_length}
        return web.json_response({"object": "list", "data": [entry]})

    async def _complete_chat(self, request: web.Request) -> web.StreamResponse:
        chat = self._chat
        assert chat is not None
        body, fault = await self._received(request)
        return await self._respond(request, fault, lambda: chat(body))

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body, fault = await self._received(request)
        asked = self._dialect.read(body)
        if len(asked.prompt_ids) >= self._engine.context_length:
            fault = Fault.TOO_LONG
        answered = spoiled(await self._answer(asked), fault)
        return await self._respond(request, fault, lambda: self._dialect.write(asked, answered))

    async def _received(self, request: web.Request) -> tuple[dict[str, Any], Fault | None]:
        body = await request.json()
        self.calls.append(body)
        return body, self.faults.popleft() if self.faults else None

    async def _answer(self, asked: Asked) -> Answered:
        sampling = SamplingParams(max_tokens=max(asked.max_tokens, 1), temperature=asked.temperature)
        scores = await self._engine.score(asked.prompt_ids) if asked.scores else None
        said = await self._engine.generate(asked.prompt_ids, sampling, session_id="", stop_ids=asked.stop_ids)
        version = said.policy_versions[0].version if said.policy_versions else None
        return Answered(said.output_ids, [*said.output_logprobs], said.finish_reason, scores, version)

    async def _respond(
        self, request: web.Request, fault: Fault | None, answer: Callable[[], Any]
    ) -> web.StreamResponse:
        if fault is Fault.HANGS:
            await self._hang()
        if fault is not None and fault in STATUSES:
            text = "maximum context length is 5 tokens" if fault is Fault.TOO_LONG else str(fault)
            return web.json_response(
                {"error": {"message": text}}, status=STATUSES[fault], headers={"Retry-After": "0"}
            )
        text = UNREADABLE[fault] if fault is not None and fault in UNREADABLE else json.dumps(answer())
        if fault is Fault.HALF_AN_ANSWER:
            return await self._half(request, text.encode())
        return web.Response(text=text, content_type="application/json")

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.abandoned.set()

    async def _half(self, request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        if request.transport is not None:
            request.transport.close()
        return response


def spoiled(answered: Answered, fault: Fault | None) -> Answered:
    """Return the answer with the fault in it."""
    ids, logprobs = answered.ids, answered.logprobs
    match fault:
        case Fault.DROPPED_LOGPROB:
            return replace(answered, logprobs=logprobs[:-1])
        case Fault.NULL_LOGPROB:
            return replace(answered, logprobs=[None, *logprobs[1:]])
        case Fault.NAN_LOGPROB:
            return replace(answered, logprobs=[float("nan"), *logprobs[1:]])
        case Fault.STAND_IN_LOGPROB:
            return replace(answered, logprobs=[-9999.0, *logprobs[1:]])
        case Fault.POSITIVE_LOGPROB:
            return replace(answered, logprobs=[1.0, *logprobs[1:]])
        case Fault.IMPOSSIBLE_ID:
            return replace(answered, ids=[1 << 30, *ids[1:]])
        case Fault.TOO_MANY_IDS:
            return replace(answered, ids=ids * 1000, logprobs=logprobs * 1000)
        case Fault.NO_CHOICE:
            return replace(answered, choices=0)
        case Fault.TWO_CHOICES:
            return replace(answered, choices=2)
        case Fault.ABORTED:
            return replace(answered, finish_reason="abort")
        case _:
            return answered
