"""Turns to the token rows a trainer consumes.

A turn whose prompt extends prompt and output of a row's last turn continues that row, also where a sub-agent
spoke in between; anything else starts a new one, with its cause. So every sampled token is trained exactly
once, on exactly the prefix it was sampled from. Rendering the conversation once more and masking by role, as
most trainers do, guarantees neither.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trajectories.errors import AlignmentError
from trajectories.tokens import TokenPrefix
from trajectories.turn import PolicySpan, RowCause, Turn


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One training sequence of length T.

    ``token_ids``, ``loss_mask``, ``logprobs`` and ``turn_index`` are parallel, each of length T.
    """

    cause: RowCause
    token_ids: list[int] = field(default_factory=list[int])
    loss_mask: list[int] = field(default_factory=list[int])
    """1 where the id was sampled by the model, 0 where it was given to it."""
    logprobs: list[float | None] = field(default_factory=list[float | None])
    """Of the sampled ids as the engine reported them; None elsewhere, and where it reported none."""
    turn_index: list[int] = field(default_factory=list[int])
    """Index into the trajectory's turns that sampled the id, or whose prompt brought it in."""
    policy_versions: list[PolicySpan] = field(default_factory=list[PolicySpan])
    """Spans in positions of this row."""


def token_rows(turns: Iterable[Turn]) -> list[TokenRow]:
    """Build the rows of a rollout; turns without ids give none.

    Raises:
        AlignmentError: An output whose logprobs or policy spans do not match its ids.
    """
    rows: list[TokenRow] = []
    last_turns: list[Turn] = []
    for index, turn in enumerate(turns):
        if turn.prompt_ids is None or turn.output_ids is None:
            continue
        place = _continued(turn, last_turns)
        if place is None:
            place = len(rows)
            rows.append(TokenRow(_cause(turn) if rows else "start"))
            last_turns.append(turn)
        last_turns[place] = turn
        _append_prompt(rows[place], index, turn.prompt_ids)
        _append_output(rows[place], index, turn, turn.output_ids)
    return rows


def _cause(turn: Turn) -> RowCause:
    """Return why a later row begins; ``start`` is the cause of the first alone."""
    return "history_edit" if turn.row_cause in (None, "start") else turn.row_cause


def _continued(turn: Turn, last_turns: Sequence[Turn]) -> int | None:
    """Return which row a turn continues, given the last turn of each; None where it begins one."""
    places = reversed(range(len(last_turns)))
    return next((place for place in places if extends(turn, last_turns[place])), None)


def extends(turn: Turn, previous: Turn) -> bool:
    """Tell whether the prompt of ``turn`` begins with the prompt and output of ``previous``, id for id."""
    if turn.prompt_ids is None or previous.prompt_ids is None or previous.output_ids is None:
        return False
    start = len(previous.prompt_ids)
    end = start + len(previous.output_ids)
    return list(turn.prompt_ids[start:end]) == previous.output_ids and (
        _starts_with(turn.prompt_ids, previous.prompt_ids)
    )


def _starts_with(ids: Sequence[int], prefix: Sequence[int]) -> bool:
    if isinstance(ids, TokenPrefix):
        return ids.starts_with(prefix)
    return len(prefix) <= len(ids) and list(ids[: len(prefix)]) == list(prefix)


def _append_prompt(row: TokenRow, index: int, prompt_ids: Sequence[int]) -> None:
    given = prompt_ids[len(row.token_ids) :]
    row.token_ids.extend(given)
    row.loss_mask.extend([0] * len(given))
    row.logprobs.extend([None] * len(given))
    row.turn_index.extend([index] * len(given))


def _append_output(row: TokenRow, index: int, turn: Turn, output_ids: list[int]) -> None:
    count, start = len(output_ids), len(row.token_ids)
    logprobs = turn.output_logprobs if turn.output_logprobs is not None else [None] * count
    if len(logprobs) != count:
        raise AlignmentError(f"turn {index} has {count} output ids but {len(logprobs)} logprobs")
    if any(not 0 <= span.start <= span.end <= count for span in turn.policy_versions):
        raise AlignmentError(f"turn {index} has policy spans outside its {count} output ids")
    row.token_ids.extend(output_ids)
    row.loss_mask.extend([1] * count)
    row.logprobs.extend(logprobs)
    row.turn_index.extend([index] * count)
    row.policy_versions.extend(
        PolicySpan(span.version, start + span.start, start + span.end) for span in turn.policy_versions
    )
