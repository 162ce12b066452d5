"""One model call of a rollout, exactly as it was made, and the tool calls it led to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from trajectories.messages import Message

FinishReason = Literal["stop", "length", "tool_calls"]

LogprobsKind = Literal["raw", "processed"]
"""``raw``: of the model's distribution; ``processed``: after temperature and truncation (top-p, top-k)."""

RowCause = Literal["start", "template", "history_edit", "subagent", "compaction"]
"""Why a token row begins: the rollout's first turn, or what broke the prefix (see ``rows``).

Sessions tell ``start`` and ``template``. Who joins the turns of several sessions into one rollout sets
``subagent`` or ``compaction`` on the first turn of each, and ``history_edit`` on one sampled from a fork that
rolled back. Whatever nobody explains counts as a ``history_edit``; the audit calls it a violation.
"""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one turn is sampled. Every value is sent to the engine; none is left to a server's default."""

    max_tokens: int = 512
    """Most tokens to sample in this turn."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 means no limit."""
    seed: int | None = None
    stop: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether tokens are drawn from the model's own distribution, neither scaled nor truncated."""
        return self.temperature == 1 and self.top_p == 1 and self.top_k == 0


@dataclass(frozen=True, slots=True)
class PolicySpan:
    """The policy version that sampled output ids ``[start, end)``."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ToolExecution:
    """How one call of the turn went; what it returned is the tool message with the same ``call_id``."""

    call_id: str | None
    name: str
    idempotency_key: str
    """``trajectory_id/attempt/turn/index``: unlike the model's ids, these never repeat."""
    success: bool
    duration_s: float
    error: str | None = None
    refused_by: str | None = None
    """The rule of the policy that did not let it run; None where it ran."""
    files_changed: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call.

    ``output_ids`` and ``output_logprobs`` are parallel. Text-only servers give turns without ids; a missing
    value is None, never a sentinel number.
    """

    message: Message
    finish_reason: FinishReason
    sampling: SamplingParams
    prompt_ids: Sequence[int] | None = None
    """Every id the engine was given for this turn."""
    output_ids: list[int] | None = None
    """The sampled ids, the end-of-turn id included where it was sampled."""
    output_logprobs: list[float] | None = None
    """Natural log, one per output id, of the distribution that ``logprobs_kind`` names; None if not sent."""
    logprobs_kind: LogprobsKind | None = None
    policy_versions: list[PolicySpan] = field(default_factory=list[PolicySpan])
    """Spans that cover ``output_ids`` in order; empty where the engine reports no version."""
    row_cause: RowCause | None = None
    """Why this prompt does not extend the turn before; None where it does or the session can't tell."""
    tool_executions: list[ToolExecution] = field(default_factory=list[ToolExecution])
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model_s: float = 0.0
    """Wall time of the model call, in seconds."""
    tools_s: float = 0.0
    """Wall time of the turn's tool calls, in seconds."""
