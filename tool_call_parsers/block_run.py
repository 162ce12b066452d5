"""The machine all marked formats share: prose, think blocks, quoted mentions, calls, and recovery.

A broken block ends at its own closing marker, counted so that blocks quoted inside it stay inside it; without
one it ends where the next block begins. So no bad block takes its siblings, and nothing inside a bad block
becomes a call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tool_call_parsers.assembly import Assembly, Mark, Row
from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.findings import Broken, Call, Fault, Item, Prose
from tool_call_parsers.prose import Quotes, after_quote, in_quotes, starts_line
from tool_call_parsers.source import Source, Steps, any_of, blank_end

_LONGEST_MARK = 64
"""No marker is longer."""


@dataclass(slots=True)
class _Open:
    """A broken block whose end was not found yet, with all that was found since."""

    start: int
    reason: Broken
    inner: list[Item] = field(default_factory=list[Item])
    sections: int = 0
    """How many sections opened in it and did not close yet."""


class BlockRun:
    """One completion read in a ``BlockFormat``."""

    def __init__(self, form: BlockFormat, src: Source, out: Assembly, *, pos: int = 0, think: bool = True):
        self._form = form
        self._src = src
        self._out = out
        self._pos = pos
        """Everything before was handed over."""
        self._quotes = Quotes(pos)
        self._open: list[_Open] = []
        self._drafts: tuple[Mark, int] | None = None
        """What had been found before a marker in a line that may open a think block, and where that ends."""
        src.part_end = pos
        self._block_end = -1
        """Where the last block ended; a closing marker right after it is doubled and dropped."""
        self._row: Row | None = None
        """The last row of blocks, where it may be quoted."""
        self._thinks = think

    def steps(self, reasoning_open: bool = False) -> Steps[None]:
        """Read to the end of the text."""
        src, marks = self._src, self._form.marks
        look = (yield from self.think(0)) if reasoning_open else self._pos
        while True:
            if mark := src.search(marks, look):
                if self._row and not self._open and blank_end(src.text, self._block_end) < mark.start():
                    self._row = None
                look = self._at_hand(mark) or (yield from self._marked(mark))
            elif not src.ended:
                look = marks.held_from(src.text, look)
                self._prose(look)
                yield
            else:
                break
        if self._open and self._row and src.cut:
            self._forget(self._row)
        elif self._open:
            self._give_up_open(len(src.text))
        self._prose(len(src.text))

    def _at_hand(self, mark: re.Match[str]) -> int | None:
        if mark.group() not in self._form.openers:
            return None
        start = mark.start()
        text = self._src.text
        if self._open or self._src.tokens or self._quotes.closer_at(text, start):
            return None
        if self._row or after_quote(text, start):
            return None
        block = self._form.at_hand(self._src, start, mark.group())
        if block is None:
            return None
        self._prose(start)
        self._commit(block.items, block.end)
        return block.end

    def _marked(self, mark: re.Match[str]) -> Steps[int]:
        """Read what begins with a marker and return where to look on."""
        form, literal, start, end = self._form, mark.group(), mark.start(), mark.end()
        if literal in form.closers:
            self._closer(literal, start, end)
            if not self._open and self._block_end == end:
                yield from self._forget_if_quoted(end)
            return end
        if literal in form.ends:
            return (yield from self._end_of_turn(start, end))
        if literal in form.think and (self._open or not self._thinks):
            return end
        if literal == form.think[1]:
            return (yield from self._think_closed(start, end))
        if (quoted := (yield from self._quoted(start))) is not None:
            return quoted
        if literal == form.think[0]:
            return (yield from self._think_opened(start, end))
        return (yield from self._block(start, literal))

    def _prose(self, end: int) -> None:
        if not self._open and end > self._pos:
            self._out.content(self._pos, end)
            self._pos = end

    def _block(self, start: int, opener: str) -> Steps[int]:
        block = yield from self._form.read(self._src, start, opener)
        if block is None:
            return start + len(opener)
        if isinstance(block, Prose):
            return block.end
        if not self._open and not self._row:
            self._prose(start)
            self._row = Row(start, self._out.mark()) if after_quote(self._src.text, start) else None
        if isinstance(block, Broken):
            self._add(start, block.items, block.resume)
            self._open.append(_Open(start if block.start is None else block.start, block))
            return max(block.resume, start + len(opener))
        if self._open:
            self._open[-1].sections += not block.items
        elif (yield from self._forget_if_quoted(block.end)):
            return block.end
        self._add(start, block.items, block.end)
        return block.end

    def _forget_if_quoted(self, end: int) -> Steps[bool]:
        """Make prose of the row of blocks that ends there if a sentence quotes it, and tell so."""
        if not self._row or not (yield from self._in_quotes(self._row.start, end)):
            return False
        self._forget(self._row)
        return True

    def _forget(self, row: Row) -> None:
        self._out.rewind(row.before)
        self._pos, self._row, self._open = row.start, None, []

    def _in_quotes(self, start: int, end: int) -> Steps[bool]:
        """Tell whether what stands there is quoted; it may be where the token limit cut the text after it."""
        src, marks = self._src, self._form.marks
        if not after_quote(src.text, start):
            return False
        following = yield from src.past_blank(end)
        yield from src.at(marks, following)
        cut = src.cut and marks.held_from(src.text, following) == following
        return cut or in_quotes(src.text, start, end)

    def _add(self, start: int, items: Sequence[Item], end: int) -> None:
        if self._open:
            self._open[-1].inner.extend(items)
        else:
            self._prose(start)
            self._commit(items, end)

    def _commit(self, items: Sequence[Item], end: int) -> None:
        self._out.block(self._form.newlines_before)
        for item in items:
            self._out.add(item)
        self._pos = end
        self._quotes.begin(end)
        self._block_end = self._src.part_end = end

    def _closer(self, literal: str, start: int, end: int) -> None:
        section = literal in self._form.section_closers
        if self._open and section and self._open[-1].sections:
            self._open[-1].sections -= 1
            return
        if self._open and section:
            self._give_up_open(start)
        if self._open:
            broken = self._open.pop()
            fault = Fault((broken.start, end), broken.reason.kind, broken.reason.message)
            if self._open:
                self._open[-1].inner.append(fault)
            else:
                self._commit([fault], end)
        elif self._block_end >= 0 and blank_end(self._src.text, self._block_end) >= start:
            self._prose(start)
            self._commit([], end)

    def _give_up_open(self, end: int) -> None:
        """Decide on the broken blocks that did not close before ``end``, of their section or of the text.

        Each ends where the next block begins. One that broke inside a raw value takes all that follows, and
        so does any in a text cut by the token limit: what looks like a block there may be a quotation.
        """
        found: list[Item | _Open] = []
        for broken in self._open:
            found.append(broken)
            if broken.reason.open_value or (self._src.cut and end == len(self._src.text)):
                break
            found += broken.inner
        starts = [item.start if isinstance(item, _Open) else item.span[0] for item in found]
        for item, following in zip(found, [*starts, end][1:], strict=True):
            if isinstance(item, _Open):
                item = self._fault(item, following)
            self._commit([item], item.span[1])
            self._out.content(item.span[1], following)
            self._pos = following
        self._open = []

    def _fault(self, broken: _Open, end: int) -> Fault:
        """Report a block that never closed; only now that the text is whole can a cut marker be told."""
        reason, form, text = broken.reason, self._form, self._src.text
        tail = text[reason.resume : reason.resume + _LONGEST_MARK]
        cut = reason.resume + len(tail) == len(text) and form.cut_in_mark(tail)
        if reason.kind == "bad_structure" and cut:
            return Fault((broken.start, end), "unclosed", f"The call is not complete. {form.advice}")
        return Fault((broken.start, end), reason.kind, reason.message)

    def _end_of_turn(self, start: int, end: int) -> Steps[int]:
        """Drop an end-of-turn token where the text ends with it; elsewhere it is prose."""
        if not (yield from self._nothing_follows(end)):
            return end
        self._prose(start)
        self._pos = len(self._src.text)
        return self._pos

    def _nothing_follows(self, pos: int) -> Steps[bool]:
        """Tell whether only blanks and end-of-turn tokens follow."""
        while True:
            pos = yield from self._src.past_blank(pos)
            mark = yield from self._src.at(self._form.marks, pos)
            if mark not in self._form.ends:
                return pos == len(self._src.text)
            pos += len(mark)

    def _quoted(self, start: int) -> Steps[int | None]:
        """Return where a quotation around ``start`` ends; None if nothing quotes it."""
        src = self._src
        if self._open or (closer := self._quotes.closer_at(src.text, start)) is None:
            return None
        found = yield from src.until(any_of(closer), start)
        if found is None and src.cut:
            return len(src.text)
        self._quotes.restart(found.end() if found else start)
        return found.end() if found else None

    def _think_opened(self, start: int, end: int) -> Steps[int]:
        text = self._src.text
        self._prose(start)
        if not starts_line(text, start) and (self._drafts or blank_end(text, self._src.part_end) < start):
            self._drafts = self._drafts or (self._out.mark(), end)
            return end
        self._pos = end
        return (yield from self.think(end))

    def think(self, start: int) -> Steps[int]:
        """Read the think block whose text begins at ``start`` and return where the answer goes on."""
        src, form = self._src, self._form
        self._out.begin_reasoning()
        begin = yield from src.past_blank(start)
        if (yield from src.at(any_of(form.think[0]), begin)):
            start = begin + len(form.think[0])
        begin = start

        def passed(safe: int) -> None:
            nonlocal begin
            self._out.reasoning(src.text[begin:safe])
            begin = safe

        stops = any_of(form.think[1], *form.ends)
        mention: re.Match[str] | None = None
        stop = yield from src.until(stops, start, passed)
        while stop and not (yield from self._ends_thought(stop)):
            if stop.group() == form.think[1]:
                mention = mention or stop
            stop = yield from src.until(stops, stop.end(), None if mention else passed)
        if mention and (stop is None or stop.group() in form.ends):
            stop = mention
        passed(stop.start() if stop else len(src.text))
        self._out.end_reasoning()
        closed = stop is not None and stop.group() == form.think[1]
        self._pos = src.part_end = stop.end() if stop and closed else len(src.text)
        self._quotes.begin(self._pos)
        if not closed and not src.cut:
            yield from self._calls_in_open_reasoning(start)
        return self._pos

    def _ends_thought(self, stop: re.Match[str]) -> Steps[bool]:
        """Tell whether a marker ends the think block: a quoted one does only if no other follows."""
        if stop.group() in self._form.ends:
            return (yield from self._nothing_follows(stop.end()))
        return not (yield from self._in_quotes(stop.start(), stop.end()))

    def _think_closed(self, start: int, end: int) -> Steps[int]:
        """Read a closing marker whose opening was not taken for one: what stands between was a draft.

        The prompt opened the block, or the text did in the midst of a line. There it may be a mention too, so
        it counts only at the edge of a line or right before a call.
        """
        after = yield from self._src.past_blank(end)
        before_call = (yield from self._src.at(self._form.marks, after)) in self._form.openers
        text = self._src.text
        if self._quotes.closer_at(text, start):
            return end
        if self._drafts and self._out.found_since(self._drafts[0]):
            mark, begin = self._drafts
        elif self._out.has_reasoning:
            return end
        elif starts_line(text, start) or "\n" in text[end:after] or after == len(text) or before_call:
            mark, begin = Mark(), 0
        else:
            return end
        self._drafts = None
        self._out.rewind_to_reasoning(mark, text[begin:start])
        self._pos = self._src.part_end = end
        self._quotes.begin(end)
        return end

    def _calls_in_open_reasoning(self, start: int) -> Steps[None]:
        """Hand over the calls in a think block that never closed."""
        drafts = _Drafts(self._src, None)
        yield from BlockRun(self._form, self._src, drafts, pos=start, think=False).steps()
        for call in drafts.found:
            self._out.call_in_open_reasoning(call)


class _Drafts(Assembly):
    """The calls of a text that is told elsewhere."""

    def __init__(self, source: Source, known: None):
        super().__init__(source, known)
        self.found: list[Call] = []

    def add(self, item: Item) -> None:
        """Keep a call."""
        if isinstance(item, Call):
            self.found.append(item)

    def mark(self) -> Mark:
        """Remember how many were found."""
        return Mark(calls=len(self.found))

    def rewind(self, mark: Mark) -> None:
        """Forget those found since."""
        del self.found[mark.calls :]
