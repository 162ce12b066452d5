"""A token-exact session: what the engine saw and sampled, kept as ids.

The prompt of turn k+1 is the prompt and output of turn k plus a bridge (see `bridge`). Sampled ids are never
decoded and encoded again, and history is never rendered again, unless the template itself rewrites it and the
session is told to follow. So a turn costs time in its new tokens alone, and its row extends the last one's.
"""

import asyncio
import time
from collections.abc import Callable, Container, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from inference.bridge import Bridge, NoBridge, Sampled, Told
from inference.chat_template import TemplateRefusal
from inference.engine import Engine, Generation
from inference.openings import Openings
from inference.probe import BridgeKind, TemplateReport
from inference.session import Completion
from inference.well_formed import well_formed
from tool_call_parsers import OpenReasoning, get_parser
from trajectories.errors import ContextOverflow
from trajectories.messages import Message, ToolSchema
from trajectories.tokens import TokenPrefix
from trajectories.turn import FinishReason, RowCause, SamplingParams, Turn

Ids = TypeVar("Ids", list[int], TokenPrefix)

HistoryPolicy = Literal["append", "template"]
"""Where a template rewrites history: ``append`` keeps what was sampled, ``template`` starts a new row from a
fresh rendering."""

_TAIL = 8
"""Prompt ids to look at for an open think block."""

_LONG_TEXT = 50_000
"""Characters from which tokenizing would hold up the event loop for more than a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sessions of a client have in common."""

    engine: Engine
    bridge: Bridge
    openings: Openings
    report: TemplateReport
    stop_ids: frozenset[int]
    """Ids that end a turn: the template's, and those the model's authors name."""
    parser: str
    calls_in_open_reasoning: OpenReasoning
    history: HistoryPolicy
    trust_first_prompt: bool
    clock: Callable[[], datetime]


class ManagedSession:
    """One conversation: ids that only grow, and the messages they stand for."""

    def __init__(
        self,
        shared: Shared,
        trajectory_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
    ):
        self._shared = shared
        self._trajectory_id = trajectory_id
        self._tools = list(tools)
        self._now = shared.clock()
        self._trusted = len(messages) if shared.trust_first_prompt else 0
        self._parser = get_parser(
            shared.parser, self._tools, shared.bridge.encoder, shared.calls_in_open_reasoning
        )
        self._messages: tuple[Told, ...] = tuple(map(well_formed, messages))
        self._ids: TokenPrefix | None = None
        """Prompt and output of the last turn; None before the first."""
        self._ended_by: int | None = None
        """The end token the last turn was sampled with; None where it was stopped before one."""
        self._reasoned = False
        """Whether a sampled turn holds reasoning that the template may drop."""

    async def extend(self, new_messages: list[Message], sampling: SamplingParams) -> Completion:
        """Append ``new_messages`` and sample the next assistant message."""
        new_messages = list(map(well_formed, new_messages))
        prompt_ids, cause = await self._prompt(new_messages)
        room = self._shared.engine.context_length - len(prompt_ids)
        if room < 1:
            raise ContextOverflow(
                f"the prompt has {len(prompt_ids)} tokens, the context {self._shared.engine.context_length}"
            )
        sampling = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        started = time.perf_counter()
        generation = await self._shared.engine.generate(
            prompt_ids,
            sampling,
            session_id=self._trajectory_id,
            stop_ids=sorted(self._shared.stop_ids),
        )
        turn = self._turn(prompt_ids, generation, sampling, cause, time.perf_counter() - started)
        self._ids = prompt_ids.append(generation.output_ids)
        self._ended_by = _last_of(generation.output_ids, self._shared.report.end_ids)
        self._reasoned = self._reasoned or turn.message.reasoning is not None
        self._messages = (*self._messages, *new_messages, self._said(turn))
        return Completion(turn.message, turn)

    def fork(self) -> "ManagedSession":
        """Return an independent session with the same history, clock and memory."""
        return copy(self)

    async def _prompt(self, new_messages: list[Message]) -> tuple[TokenPrefix, RowCause | None]:
        """Return the next prompt, and why it does not extend the last turn's if it doesn't."""
        if self._ids is None:
            return await self._opening(new_messages), "start"
        kind: BridgeKind = "tool" if new_messages and new_messages[0].role == "tool" else "user"
        ways = [self._bridged, self._rendered_again]
        if self._shared.history == "template" and self._is_rewritten(kind):
            ways.reverse()
        try:
            return await ways[0](new_messages, kind)
        except TemplateRefusal:
            return await ways[1](new_messages, kind)

    def _is_rewritten(self, kind: BridgeKind) -> bool:
        rewrite = self._shared.report.rewrites.get(kind)
        return rewrite == "prompt" or (rewrite == "reasoning" and self._reasoned)

    async def _opening(self, new_messages: list[Message]) -> TokenPrefix:
        messages, openings = [*self._messages, *new_messages], self._shared.openings
        return await _encoded(
            messages,
            lambda: openings.prompt(messages, self._tools, now=self._now, trusted=self._trusted),
        )

    async def _rendered(self, new_messages: list[Message]) -> list[int]:
        messages = [*self._messages, *new_messages]
        bridge, trusted = self._shared.bridge, self._trusted
        return await _encoded(
            messages, lambda: bridge.prompt(messages, self._tools, now=self._now, trusted=trusted)
        )

    async def _bridged(
        self, new_messages: list[Message], kind: BridgeKind
    ) -> tuple[TokenPrefix, RowCause | None]:
        report, bridge, ended_by = self._shared.report, self._shared.bridge, self._ended_by
        seam = report.seams.get(kind)
        if seam is None or self._ids is None:
            raise NoBridge(report.unsafe.get(kind, f"{report.template} carries no {kind} messages"))
        first = self._messages[0]
        ids = await _encoded(
            new_messages,
            lambda: bridge.between(
                new_messages,
                self._tools,
                seam,
                now=self._now,
                ended_by=ended_by,
                system=first if isinstance(first, Message) and first.role == "system" else None,
            ),
        )
        return self._ids.append(ids), None

    async def _rendered_again(
        self, new_messages: list[Message], kind: BridgeKind
    ) -> tuple[TokenPrefix, RowCause | None]:
        rendered = await self._rendered(new_messages)
        if self._ids is not None and rendered[: len(self._ids)] == self._ids:
            return self._ids.append(rendered[len(self._ids) :]), None
        return TokenPrefix(rendered), "template"

    def _turn(
        self,
        prompt_ids: TokenPrefix,
        generation: Generation,
        sampling: SamplingParams,
        cause: RowCause | None,
        model_s: float,
    ) -> Turn:
        spoken = self._spoken(generation.output_ids)
        encoder = self._shared.bridge.encoder
        message = self._parser.parse(
            encoder.decode(spoken),
            finish_reason=generation.finish_reason,
            reasoning_open=encoder.decode(prompt_ids[-_TAIL:]).rstrip().endswith("<think>"),
            token_ids=spoken,
        )
        finish_reason: FinishReason = generation.finish_reason
        if finish_reason == "stop" and message.tool_calls:
            finish_reason = "tool_calls"
        return Turn(
            message,
            finish_reason,
            sampling,
            prompt_ids=prompt_ids,
            output_ids=generation.output_ids,
            output_logprobs=generation.output_logprobs,
            logprobs_kind=self._shared.engine.logprobs_kind,
            policy_versions=generation.policy_versions,
            row_cause=cause,
            prompt_tokens=len(prompt_ids),
            completion_tokens=len(generation.output_ids),
            model_s=model_s,
        )

    def _said(self, turn: Turn) -> Told:
        """Return what a later rendering is to tell: a malformed call in the model's own tokens."""
        if turn.message.errors:
            return Sampled(self._spoken(turn.output_ids or []))
        return well_formed(turn.message)

    def _spoken(self, output_ids: list[int]) -> list[int]:
        """Return the output without the id that ended it."""
        return output_ids if _last_of(output_ids, self._shared.stop_ids) is None else output_ids[:-1]


def _last_of(ids: Sequence[int], among: Container[int]) -> int | None:
    return ids[-1] if ids and ids[-1] in among else None


async def _encoded(messages: Sequence[Told], encode: Callable[[], Ids]) -> Ids:
    """Encode here, or in a thread where it would hold up the event loop."""
    if sum(map(_length, messages)) < _LONG_TEXT:
        return encode()
    return await asyncio.to_thread(encode)


def _length(message: Told) -> int:
    return len(message.ids) if isinstance(message, Sampled) else len(message.content or "")
