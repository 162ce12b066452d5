"""Continuous batching: a forward pass carries the next id of all running requests and pieces of new prompts.

One thread owns the model and everything in this file. A request joins and leaves at any pass, so none waits
for the slowest of a fixed batch. A prompt that shares a long beginning with one being computed right now
waits for it: copying keys and values costs a hundredth of computing them.
"""

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from inference.engine import Generation, checked
from inference.kv_cache import KVRow, PrefixCache, Tensor, common_prefix
from inference.packed_model import PackedModel, Piece
from inference.sampling import choose
from trajectories.errors import LachesisError, ModelError
from trajectories.turn import PolicySpan, SamplingParams

PIECE_TOKENS = 512
"""Prompt ids computed in one pass; bounds how long a new prompt holds up the running requests."""

WORTH_WAITING_TOKENS = 64
"""A shared beginning shorter than this is computed again rather than waited for."""


@dataclass(eq=False)
class Request:
    """One generation in flight; ``answer`` receives the Generation."""

    prompt_ids: list[int]
    sampling: SamplingParams
    stop_ids: frozenset[int]
    max_tokens: int
    answer: Future[Generation] = field(default_factory=Future)
    row: KVRow = field(init=False)
    draws: random.Random = field(init=False)
    output_ids: list[int] = field(default_factory=list)
    output_logprobs: list[float] = field(default_factory=list)

    def pending(self) -> list[int]:
        """Return the ids whose keys and values are still missing."""
        done = len(self.row.ids)
        return self.prompt_ids[done:] if done < len(self.prompt_ids) else self.output_ids[-1:]


@dataclass(eq=False)
class Job:
    """Other work for the model's thread, between two passes."""

    work: Callable[[], Any]
    alone: bool
    """Whether running requests have to finish first."""
    answer: Future[Any] = field(default_factory=Future)


class Scheduler:
    """The thread that runs the model.

    Args:
        model: Used by this thread alone from now on.
        max_batch: Most requests running at once.
        cache_tokens: Most ids whose keys and values are kept for prompts to come.
        decode: Ids to text, needed only where requests have stop strings.
        policy_version: Name of the weights the model holds.
        threads: Cores this thread computes with.
    """

    def __init__(
        self,
        model: PackedModel,
        *,
        max_batch: int,
        cache_tokens: int,
        decode: Callable[[list[int]], str],
        policy_version: str,
        threads: int,
    ):
        self.policy_version = policy_version
        self._threads = threads
        self._model = model
        self._max_batch = max_batch
        self._decode = decode
        self._cache = PrefixCache(model.layers, cache_tokens)
        self._waiting: list[Request] = []
        self._jobs: list[Job] = []
        self._running: list[Request] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="embedded-engine", daemon=True)
        self._thread.start()

    def submit(self, work: Request | Job) -> None:
        """Queue ``work``; cancelling its answer drops it at the next pass."""
        with self._changed:
            if self._closed:
                raise ModelError("the embedded engine is closed")
            if isinstance(work, Request):
                self._waiting.append(work)
            else:
                self._jobs.append(work)
            self._changed.notify()

    def close(self) -> None:
        """End the thread after the pass it is in; whatever is unfinished fails."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def clear_cache(self) -> None:
        """Forget all keys and values; only for jobs that run alone."""
        self._cache.clear()

    def _run(self) -> None:
        import torch

        torch.set_num_threads(self._threads)
        while self._wait_for_work():
            try:
                self._run_jobs()
                self._admit()
                self._drop_cancelled()
                if self._running:
                    self._step()
            except Exception as error:  # the pass failed: so did everything in it, and nothing else
                self._fail(self._running, ModelError(f"the embedded engine failed: {error!r}"))
                self._running = []
        closed = ModelError("the embedded engine was closed")
        self._fail([*self._running, *self._waiting, *self._jobs], closed)

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not (self._closed or self._running or self._waiting or self._jobs):
                self._changed.wait()
            return not self._closed

    def _run_jobs(self) -> None:
        while self._jobs and not (self._jobs[0].alone and self._running):
            job = self._jobs.pop(0)
            if not job.answer.set_running_or_notify_cancel():
                continue
            try:
                job.answer.set_result(job.work())
            except LachesisError as error:
                job.answer.set_exception(error)
            except Exception as error:
                job.answer.set_exception(ModelError(f"the embedded engine failed: {error!r}"))

    def _drop_cancelled(self) -> None:
        for request in [request for request in self._running if request.answer.cancelled()]:
            self._retire(request)

    def _admit(self) -> None:
        """Start waiting requests in order, unless a job waits for the running ones to end."""
        with self._changed:
            waiting = list(self._waiting)
        for request in waiting:
            if self._jobs or len(self._running) >= self._max_batch:
                return
            row, shared = self._cache.reusable(request.prompt_ids, [other.row for other in self._running])
            if self._worth_waiting(request, shared) and not request.answer.cancelled():
                continue
            self._waiting.remove(request)
            request.row = self._cache.acquire(row, shared)
            request.draws = random.Random(request.sampling.seed)
            self._running.append(request)

    def _worth_waiting(self, request: Request, shared: int) -> bool:
        return any(
            common_prefix(other.prompt_ids, request.prompt_ids[:-1]) >= shared + WORTH_WAITING_TOKENS
            for other in self._running
            if len(other.row.ids) < len(other.prompt_ids)
        )

    def _step(self) -> None:
        """Run one forward pass and give every request that is through with its prompt one more id."""
        budget = PIECE_TOKENS
        pieces: list[Piece] = []
        sampling: list[Request] = []
        for request in self._running:
            pending = request.pending()
            ids = pending if request.output_ids else pending[:budget]
            if not ids:
                continue
            budget = max(budget - len(ids), 0)
            complete = len(ids) == len(pending)
            pieces.append(Piece(request.row, ids, "last" if complete else "none"))
            if complete:
                sampling.append(request)
        logits = self._model.forward(pieces)
        if sampling:
            self._sample(sampling, logits)

    def _sample(self, requests: list[Request], logits: Tensor) -> None:
        ids = choose(logits, [item.sampling for item in requests], [item.draws for item in requests])
        logprobs = logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]
        for request, token_id, logprob in zip(requests, ids.tolist(), logprobs.tolist(), strict=True):
            request.output_ids.append(token_id)
            request.output_logprobs.append(logprob)
            finish_reason = self._finish_reason(request)
            if finish_reason is not None:
                self._retire(request)
                self._answer(request, finish_reason)

    def _finish_reason(self, request: Request) -> Literal["stop", "length"] | None:
        if request.output_ids[-1] in request.stop_ids:
            return "stop"
        if request.sampling.stop:
            tail = max(len(text.encode()) for text in request.sampling.stop) + 1  # an id is at least one byte
            text = self._decode(request.output_ids[-tail:])
            if any(stop in text for stop in request.sampling.stop):
                return "stop"
        return "length" if len(request.output_ids) >= request.max_tokens else None

    def _answer(self, request: Request, finish_reason: Literal["stop", "length"]) -> None:
        if not request.answer.set_running_or_notify_cancel():
            return
        span = PolicySpan(self.policy_version, 0, len(request.output_ids))
        generation = Generation(request.output_ids, request.output_logprobs, finish_reason, [span])
        try:
            request.answer.set_result(checked(generation, self._model.vocab_size, request.sampling))
        except ModelError as error:
            request.answer.set_exception(error)

    def _retire(self, request: Request) -> None:
        self._running.remove(request)
        self._cache.release(request.row)

    def _fail(self, work: Sequence[Request | Job], error: ModelError) -> None:
        for item in work:
            if item.answer.set_running_or_notify_cancel():
                item.answer.set_exception(error)
