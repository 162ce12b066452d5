"""Trajectories as JSON Lines: one versioned object a rollout.

Nothing is written twice. A turn's message stands in ``messages`` and the turn holds its index; a prompt that
extends the turn before is written as the new ids alone (``"continues": true``). Stored whole, prompts would
make a record grow with the square of its turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from trajectories import lossless_json
from trajectories.errors import ConfigError
from trajectories.messages import Message
from trajectories.rows import extends
from trajectories.tokens import TokenPrefix
from trajectories.trajectory import Trajectory
from trajectories.turn import Turn

SCHEMA_VERSION = 1

Record = dict[str, Any]

UPGRADES: dict[int, Callable[[Record], Record]] = {}
"""From each older schema version, the step that makes its record one version newer."""

_TURN_FIELDS = [f.name for f in fields(Turn)]
_TRAJECTORY_FIELDS = [f.name for f in fields(Trajectory)]


def dumps(trajectory: Trajectory) -> bytes:
    """Encode one trajectory as one line of JSON, without its newline."""
    record = {name: getattr(trajectory, name) for name in _TRAJECTORY_FIELDS}
    positions = {id(message): index for index, message in enumerate(trajectory.messages)}
    previous: list[Turn | None] = [None, *trajectory.turns]
    turns = [_pack(turn, before, positions) for turn, before in zip(trajectory.turns, previous, strict=False)]
    return lossless_json.encode({"schema_version": SCHEMA_VERSION, **record, "turns": turns})


def loads(line: bytes | str) -> Trajectory:
    """Decode one line, whatever version wrote it.

    Raises:
        ConfigError: Not a trajectory record, or one of a newer version than this program knows.
    """
    try:
        record = _upgraded(lossless_json.decode(line))
        messages = msgspec.convert(record["messages"], list[Message])
        turns: list[Turn] = []
        for packed in record["turns"]:
            turns.append(_unpack(packed, turns[-1] if turns else None, messages))
        plain = msgspec.convert({**record, "turns": [], "messages": []}, Trajectory)
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ConfigError(f"not a trajectory record: {type(error).__name__}: {error}") from error
    return replace(plain, messages=messages, turns=turns)


def read_trajectories(path: Path | str) -> Iterator[Trajectory]:
    """Yield every trajectory of a JSON Lines file.

    Raises:
        ConfigError: A line that is no trajectory; the message names it.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield loads(line)
            except ConfigError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from error


def _upgraded(record: Record) -> Record:
    version = record["schema_version"]
    if version > SCHEMA_VERSION:
        raise ConfigError(f"record of schema version {version}; this program reads up to {SCHEMA_VERSION}")
    for older in range(version, SCHEMA_VERSION):
        record = UPGRADES[older](record)
    return {name: value for name, value in record.items() if name != "schema_version"}


def _pack(turn: Turn, previous: Turn | None, positions: dict[int, int]) -> Record:
    packed = {name: getattr(turn, name) for name in _TURN_FIELDS}
    packed["message"] = positions.get(id(turn.message), turn.message)
    packed["continues"] = previous is not None and extends(turn, previous)
    if turn.prompt_ids is not None:
        packed["prompt_ids"] = list(turn.prompt_ids[_seen(previous) if packed["continues"] else 0 :])
    return packed


def _unpack(packed: Record, previous: Turn | None, messages: list[Message]) -> Turn:
    message = packed["message"]
    message = messages[message] if isinstance(message, int) else msgspec.convert(message, Message)
    fields_of_turn = {name: packed[name] for name in _TURN_FIELDS if name in packed}
    turn = msgspec.convert({**fields_of_turn, "message": {"role": "assistant"}}, Turn)
    return replace(turn, message=message, prompt_ids=_prompt(turn, packed["continues"], previous))


def _prompt(turn: Turn, continues: bool, previous: Turn | None) -> TokenPrefix | None:
    if turn.prompt_ids is None:
        return None
    if not continues:
        return TokenPrefix(turn.prompt_ids)
    if previous is None or previous.output_ids is None or not isinstance(previous.prompt_ids, TokenPrefix):
        raise ConfigError("a turn continues one that has no token ids")
    return previous.prompt_ids.append(previous.output_ids).append(turn.prompt_ids)


def _seen(turn: Turn | None) -> int:
    """Return how many ids prompt and output of ``turn`` have together."""
    return len(turn.prompt_ids or ()) + len(turn.output_ids or ()) if turn else 0
