"""Does a record hold what the policy sampled? Ask the engine that sampled it.

Every row is scored again as one prompt. A token that was shifted, masked wrongly, re-encoded or sampled on
another prefix gets another logprob than it was recorded with; agreement within numeric noise is the one proof
that covers the engine, the session, the store and the rows at once.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from inference.engine import Engine
from inference.kv_cache import common_prefix
from trajectories.errors import AlignmentError, LachesisError
from trajectories.rows import TokenRow, token_rows
from trajectories.trajectory import Trajectory
from trajectories.turn import Turn


@dataclass(slots=True)
class AuditReport:
    """What was compared and what was found; printed, it reads as a list."""

    trajectories: int = 0
    text_only: int = 0
    """Trajectories without token ids, which hold nothing to compare."""
    rows: Counter[str] = field(default_factory=Counter)
    """Rows by the cause they began for."""
    sampled: int = 0
    """Sampled tokens, of all turns."""
    trained: int = 0
    """Tokens that a loss mask is set on, of all rows."""
    compared: int = 0
    """Tokens whose logprob was recomputed."""
    skipped: int = 0
    """Tokens that the engine can't score (see `Engine.score`), or not alike (see `comparable`)."""
    total_delta: float = 0.0
    max_delta: float = 0.0
    """Largest difference between a recorded logprob and the recomputed one."""
    worst: str = "nowhere"
    violations: list[str] = field(default_factory=list)

    @property
    def mean_delta(self) -> float:
        """Mean difference; 0 where nothing was compared."""
        return self.total_delta / self.compared if self.compared else 0.0

    def __str__(self) -> str:
        """Return the report as lines of text."""
        rows = ", ".join(f"{count} by {cause}" for cause, count in sorted(self.rows.items()))
        lines = [
            f"trajectories      {self.trajectories}, text only {self.text_only}",
            f"rows              {sum(self.rows.values())} ({rows})",
            f"sampled tokens    {self.sampled}, trained {self.trained}",
            f"compared          {self.compared}, not comparable {self.skipped}",
            f"|Δ logprob|       max {self.max_delta:.2e} ({self.worst}), mean {self.mean_delta:.2e}",
            f"violations        {len(self.violations)}",
        ]
        return "\n".join(lines + [f"  {violation}" for violation in self.violations])


async def audit(
    trajectories: Iterable[Trajectory], engine: Engine, *, max_delta: float, concurrency: int = 8
) -> AuditReport:
    """Score stored trajectories again and compare.

    Args:
        trajectories: The records; those without token ids count, but hold nothing to compare.
        engine: The engine that sampled them, started, with the same weights.
        max_delta: Largest difference that is numeric noise.
        concurrency: Rows scored at a time.

    Raises:
        ModelError: The engine can't score.
        ConfigError: A record can't be read.
        OSError: Nor can the file it stands in.
    """
    report = AuditReport()
    gate = asyncio.Semaphore(concurrency)

    async def check(trajectory: Trajectory) -> None:
        try:
            await _check(report, trajectory, engine, max_delta)
        finally:
            gate.release()

    try:
        async with asyncio.TaskGroup() as group:
            for trajectory in trajectories:
                await gate.acquire()
                group.create_task(check(trajectory))
    except* (LachesisError, OSError) as errors:
        raise errors.exceptions[0] from None
    return report


def comparable(turn: Turn) -> bool:
    """Tell whether prompt logprobs, which are raw, can equal those recorded when the turn was sampled."""
    return turn.logprobs_kind == "raw" or turn.sampling.plain


async def _check(report: AuditReport, trajectory: Trajectory, engine: Engine, max_delta: float) -> None:
    def violation(text: str) -> None:
        report.violations.append(f"{trajectory.trajectory_id}: {text}")

    report.trajectories += 1
    turns = [turn for turn in trajectory.turns if turn.output_ids is not None]
    report.text_only += not turns
    if turns and trajectory.model != engine.model:
        violation(f"sampled by {trajectory.model}, scored by {engine.model}")
    rows: list[TokenRow] = []
    try:
        rows = token_rows(trajectory.turns)
    except AlignmentError as error:
        violation(str(error))
    sampled = sum(len(turn.output_ids or ()) for turn in turns)
    trained = sum(sum(row.loss_mask) for row in rows)
    report.sampled += sampled
    report.trained += trained
    if trained != sampled:
        violation(f"{sampled} tokens were sampled, but {trained} are trained")
    for number, row in enumerate(rows):
        report.rows[row.cause] += 1
        if not row.token_ids:
            continue
        begun_by = trajectory.turns[row.turn_index[0]]
        if number and begun_by.row_cause is None:
            violation(f"turn {row.turn_index[0]} {_break([*(begun_by.prompt_ids or ())], rows[:number])}")
        problem = _compare(report, trajectory, number, row, await engine.score(row.token_ids), max_delta)
        if problem is not None:
            violation(problem)


def _break(prompt_ids: Sequence[int], rows: Sequence[TokenRow]) -> str:
    """Tell where a prompt leaves the row it shares most ids with, and what that means."""
    shared = [common_prefix(row.token_ids, prompt_ids) for row in rows]
    position = max(shared)
    number = shared.index(position)
    said = f"breaks row {number} at position {position} and says no cause: "
    if position < len(prompt_ids) and rows[number].loss_mask[position : position + 1] == [1]:
        return said + f"an output of turn {rows[number].turn_index[position]} was encoded again or edited"
    return said + "history was edited or rolled back"


def _compare(
    report: AuditReport,
    trajectory: Trajectory,
    number: int,
    row: TokenRow,
    scores: list[float | None],
    max_delta: float,
) -> str | None:
    """Compare one row's logprobs; returns its worst violation."""
    worst, problem = max_delta, None
    for position, mask in enumerate(row.loss_mask):
        if not mask:
            continue
        turn, recorded, score = row.turn_index[position], row.logprobs[position], scores[position]
        place = f"row {number}, position {position}, turn {turn}"
        if score is None or not comparable(trajectory.turns[turn]):
            report.skipped += 1
            continue
        if recorded is None:
            return f"{place}: no logprob was recorded"
        delta = abs(recorded - score)
        report.compared += 1
        report.total_delta += delta
        if delta > report.max_delta:
            report.max_delta, report.worst = delta, f"{trajectory.trajectory_id}, {place}"
        if delta > worst:
            worst, problem = delta, f"{place}: recorded {recorded:.4f}, recomputed {score:.4f}"
    return problem
