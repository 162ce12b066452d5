"""What a family whose calls stand between markers says about them.

It names the markers that open and close its blocks and reads one block. What it reads is a list of calls and
faults with the end of the block, or that this is no block but prose, or that the block is broken and its end
unknown. All else is done by the machine that runs it (``block_run``).
"""

from abc import ABC, abstractmethod
from functools import cached_property

from tool_call_parsers.findings import Block, Broken, Prose, Word
from tool_call_parsers.prose import blanks_before, starts_line
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps, blank_end


class BlockFormat(ABC):
    """A format whose calls stand between markers.

    Args:
        tools: The tools a call may name, for the types of raw values.
    """

    openers: tuple[str, ...]
    """What a block can begin with."""
    closers: tuple[str, ...]
    """What a block ends with."""
    section_closers: tuple[str, ...] = ()
    """Those of ``closers`` that end a whole section of blocks; its opener is read as a block of no calls."""
    inner: tuple[str, ...] = ()
    """What else can stand in a block, to tell a block that was cut from one that is wrong."""
    ends: tuple[str, ...] = ()
    """End-of-turn tokens, dropped where they end the text."""
    example: str
    """The right form, shown to the model."""
    think: tuple[str, str] = ("<think>", "</think>")
    """What opens and closes a think block."""
    newlines_before = 1
    """How many newlines before a block belong to it."""

    def __init__(self, tools: ToolSchemas):
        self.tools = tools

    def broken(self, src: Source, what: str, pos: int) -> Broken:
        """Say what is wrong with a block at ``pos``, or that the text ended there."""
        if pos == len(src.text):
            return Broken("unclosed", f"The call is not complete. {self.advice}", pos)
        return Broken("bad_structure", f"{what} {self.advice}", pos)

    @cached_property
    def advice(self) -> str:
        """What to tell the model after saying what is wrong."""
        return f"A call looks like this:\n{self.example}"

    def cut_in_mark(self, tail: str) -> bool:
        """Tell whether a text that ends with ``tail`` was cut inside a marker."""
        marks = (*self.inner, *self.openers, *self.closers, *self.ends)
        return tail not in marks and any(mark.startswith(tail) for mark in marks)

    def word(self, src: Source, pos: int, stops: Markers, closing: str) -> Steps["Word | Broken"]:
        """Read a name from ``pos`` to ``closing``, the one of ``stops`` that may end it."""
        stop = yield from src.until(stops, pos)
        if stop is None:
            return self.broken(src, "", len(src.text))
        text = src.text[pos : stop.start()].strip()
        if stop.group() != closing:
            return self.broken(src, f"{closing} is missing after {text[:80]!r}.", stop.start())
        if not text:
            return Broken("missing_name", f"Before {closing} stands no name. {self.advice}", stop.start())
        return Word(text, stop.end())

    @abstractmethod
    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | Prose | None]:
        """Read the block that begins at ``start`` with ``opener``; None if that is only prose."""

    def at_hand(self, src: Source, start: int, opener: str) -> Block | None:
        """Read what ``read`` would, in one go, if it is the ordinary form and stands there whole.

        Most blocks do. None leaves it to ``read``: anything unusual or wrong, and any need to wait.
        """
        return None

    @cached_property
    def marks(self) -> Markers:
        """Everything that can end a run of prose."""
        return Markers((*self.openers, *self.closers, *self.ends, *self.think))

    def stands_free(self, src: Source, start: int) -> bool:
        """Tell whether ``start`` begins a line or follows a block or marker, as no marker in prose does."""
        text = src.text
        if starts_line(text, start) or blank_end(text, src.part_end) >= start:
            return True
        return text.endswith((*self.openers, *self.closers), 0, blanks_before(text, start))

    @cached_property
    def after_body(self) -> Markers:
        """Everything that can follow the body of a block."""
        return Markers((*self.openers, *self.closers, *self.ends))

    def close(self, src: Source, body_end: int) -> Steps[int | None]:
        """Return the end of a block whose body is whole; None where something else follows the body.

        A body that shows its own end, in a format without closing markers, ends the block.

        The closing marker may be missing where the next block or the end of the turn follows: a server took
        it off as a stop string, or the model forgot it. Where the token limit cut the text it may not.
        """
        if not self.closers:
            return body_end
        pos = yield from src.past_blank(body_end)
        mark = yield from src.at(self.after_body, pos)
        if mark in self.closers:
            return pos + len(mark)
        if mark is not None or (pos == len(src.text) and not src.cut):
            return body_end
        return None
