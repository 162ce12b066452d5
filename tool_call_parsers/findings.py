"""What a format finds in a completion: calls and faults, and the blocks that hold them.

Most are named tuples: several are made per call, and a frozen dataclass takes three times as long to make.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from trajectories.messages import ParseErrorKind, Span


class Call(NamedTuple):
    """A call as found in the text, before it has an id."""

    span: Span
    name: str
    arguments: dict[str, Any]
    native_id: str | None = None
    mismatch: str | None = None
    """What in the arguments does not fit the schema, where something does not."""


class Fault(NamedTuple):
    """A block that is no call, with the reason."""

    span: Span
    kind: ParseErrorKind
    message: str


Item = Call | Fault


class Block(NamedTuple):
    """A block whose end is known."""

    end: int
    items: list[Item]


class Prose(NamedTuple):
    """What looked like a block and is none, to its end."""

    end: int


class Word(NamedTuple):
    """A name, and where the marker after it ends."""

    text: str
    end: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A block that cannot be read; its end is still to be found."""

    kind: ParseErrorKind
    message: str
    resume: int
    """Where to look for the end."""
    open_value: bool = False
    """Whether all that follows is a value's data, unless the block's own closing marker comes."""
    items: tuple[Item, ...] = ()
    """What was found in the block before it broke."""
    start: int | None = None
    """Where the broken part begins, where that is not the beginning of the block."""
