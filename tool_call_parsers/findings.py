"""What a format finds in a completion: calls and faults, and the blocks that hold them.

Structs of msgspec: several are made per call, and a frozen dataclass takes six times as long to make.
"""

from typing import Any

from msgspec import Struct

from trajectories.messages import ParseErrorKind, Span


class Call(Struct, frozen=True):
    """A call as found in the text, before it has an id."""

    span: Span
    name: str
    arguments: dict[str, Any]
    native_id: str | None = None
    mismatch: str | None = None
    """What in the arguments does not fit the schema, where something does not."""


class Fault(Struct, frozen=True):
    """A block that is no call, with the reason."""

    span: Span
    kind: ParseErrorKind
    message: str


Item = Call | Fault


class Block(Struct, frozen=True):
    """A block whose end is known."""

    end: int
    items: list[Item]


class Prose(Struct, frozen=True):
    """What looked like a block and is none, to its end."""

    end: int


class Word(Struct, frozen=True):
    """A name, and where the marker after it ends."""

    text: str
    end: int


class Broken(Struct, frozen=True):
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
