"""What the formats with raw values share: ``<parameter=k>VALUE</parameter>`` and its kin.

Raw values have no escape, so the text of a value may look like the end of it. The rules:

- A closing tag ends a value only if a further parameter, the end of the call or the end of the text follows.
- An opening tag inside a value is data. If closing tags balance such openings, the value is read so: a quoted
  example stays inside its value. Only if no reading of the whole text balances them, the first closing tag
  that may end the value does.
- What is ambiguous even then is refused: a value that would hold the opening of another call or parameter,
  and a call after which a closing tag is left over. A wrong value executed is worse than an error the model
  sees.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.findings import Block, Broken, Call, Fault
from tool_call_parsers.source import Markers, Source, Steps, any_of


@dataclass(frozen=True, slots=True)
class Tag:
    """What an opening tag says, and where the text after it begins."""

    name: str
    end: int
    is_json: bool | None = None
    """Whether the format marks the value as JSON; None where it does not say."""


@dataclass(frozen=True, slots=True)
class RawValue:
    """Where a value ends, and where the next tag begins."""

    end: int
    following: int


class TaggedFormat(BlockFormat):
    """A block with a name and raw values between tags."""

    parameter_opener: str
    """How the opening tag of a parameter begins."""
    value_opener: str
    """How the tag right before a value begins: that of the parameter, where the format has no other."""
    value_closer: str
    call_opener: str
    """What a value quoting another call would hold."""
    call_closer: str
    """What follows the last parameter; may be the block's closing marker."""
    trims_newlines = False
    """Whether one newline at either end of a value belongs to the format."""

    @abstractmethod
    def head(self, src: Source, start: int, opener: str) -> Steps[Tag | Block | Broken | None]:
        """Read what stands before the first parameter; None if this is prose."""

    @abstractmethod
    def parameter(self, src: Source, pos: int) -> Steps[Tag | Broken]:
        """Read the tag or tags before a value."""

    @cached_property
    def inside(self) -> Markers:
        """What may follow a value or the head."""
        return Markers((self.parameter_opener, self.call_closer, *self.closers, *self.ends))

    def next_tag(self, src: Source, pos: int) -> Steps[str | None]:
        """Wait for what stands at ``pos``: how a parameter, or what ends the call, begins."""
        return (yield from src.at(self.inside, pos))

    def value_tags(self, key: str) -> tuple[str, str]:
        """Return what opens and what closes the value of a parameter."""
        return self.value_opener, self.value_closer

    @cached_property
    def _call_tags(self) -> Markers:
        return Markers((self.call_opener, self.call_closer))

    @cached_property
    def _after_call(self) -> Markers:
        return Markers((*self.openers, self.value_closer))

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read one call."""
        head = yield from self.head(src, start, opener)
        if not isinstance(head, Tag):
            return head
        raw: dict[str, tuple[str, bool | None]] = {}
        pos = yield from src.past_blank(head.end)
        while (mark := (yield from self.next_tag(src, pos))) == self.parameter_opener:
            tag = yield from self.parameter(src, pos)
            if isinstance(tag, Broken):
                return tag
            value = yield from self._value(src, head.name, tag, raw.keys())
            if isinstance(value, Broken):
                return value
            if tag.name in raw:
                return self.broken(src, f"The parameter {tag.name!r} is given twice.", value.following)
            raw[tag.name] = self._trimmed(src.text[tag.end : value.end]), tag.is_json
            pos = value.following
        if mark not in (self.call_closer, *self.closers):
            return self.broken(src, f"{self.call_closer} is missing.", pos)
        body_end = pos + len(mark)
        end = body_end if mark in self.closers else (yield from self.close(src, body_end))
        if end is None:
            pos = yield from src.past_blank(body_end)
            return self.broken(src, f"{self.closers[-1]} is missing.", pos)
        if (yield from self._value_ends_later(src, end)):
            what = f"A value holds {self.value_closer}, so its end is not clear."
            return Broken("bad_structure", f"{what} {self.advice}", end)
        return Block(end, [self._call(head.name, raw, start, end)])

    def _value_ends_later(self, src: Source, pos: int) -> Steps[bool]:
        """Tell whether before the next block a closing tag is left over that may end a value."""
        left_over = False
        while (tag := (yield from src.until(self._after_call, pos))) and tag.group() == self.value_closer:
            left_over = True
            pos = yield from src.past_blank(tag.end())
            if pos == len(src.text) or (yield from self.next_tag(src, pos)):
                return True
        return left_over and tag is None and src.cut

    def _value(self, src: Source, tool: str, tag: Tag, given: Any) -> Steps[RawValue | Broken]:
        """Find the end of the value that begins after ``tag``."""
        opener, closer = self.value_tags(tag.name)
        if not src.memo.get(("never balances", closer)):
            value = yield from self._balanced(src, tag.end, opener, closer)
            if value:
                return value
            src.memo["never balances", closer] = True
        call_tag = src.search(self._call_tags, tag.end)
        lacks_closer = call_tag is not None and call_tag.group() == self.call_closer
        resume = len(src.text) if src.cut and not lacks_closer else tag.end
        value = yield from self._first_end(src, tag.end, closer)
        if value is None:
            what = f"The value of {tag.name!r} has no {closer}."
            kind = "bad_structure" if lacks_closer else "unclosed"
            return Broken(kind, f"{what} {self.advice}", resume, open_value=True)
        held = src.text[tag.end : value.end]
        missing = [key for key in self.tools.properties(tool) if key not in given and key != tag.name]
        if self.call_opener in held or any(self.opening(key) in held for key in missing):
            what = f"The value of {tag.name!r} holds another opening tag, so its end is not clear."
            return Broken("bad_structure", f"{what} {self.advice}", resume, open_value=True)
        return value

    def opening(self, key: str) -> str:
        """Return the beginning of the tag of one parameter."""
        return f"{self.parameter_opener}{key}"

    def _balanced(self, src: Source, pos: int, opener: str, closer: str) -> Steps[RawValue | None]:
        """Find the closing tag that ends the value with all openings inside it closed."""
        tags = any_of(opener, closer)
        depth = 0
        while tag := (yield from src.until(tags, pos)):
            pos = tag.end()
            if tag.group() == opener:
                depth += 1
            elif depth:
                depth -= 1
            else:
                following = yield from src.past_blank(pos)
                if following == len(src.text) or (yield from self.next_tag(src, following)):
                    return RawValue(tag.start(), following)
        return None

    def _first_end(self, src: Source, pos: int, closer: str) -> Steps[RawValue | None]:
        """Find the first closing tag that may end the value, in a text that has ended."""
        known: tuple[int, RawValue | None] | None = src.memo.get(("first end", closer))
        if known and known[0] <= pos and (known[1] is None or pos <= known[1].end):
            return known[1]
        closers = any_of(closer)
        value, look = None, pos
        while value is None and (tag := (yield from src.until(closers, look))):
            look = tag.end()
            following = yield from src.past_blank(look)
            if following == len(src.text) or (yield from self.next_tag(src, following)):
                value = RawValue(tag.start(), following)
        src.memo["first end", closer] = (pos, value)
        return value

    def _trimmed(self, value: str) -> str:
        if not self.trims_newlines:
            return value
        newline = "\r\n" if value.startswith("\r\n") and value.endswith("\r\n") else "\n"
        return value.removeprefix(newline).removesuffix(newline)

    def _call(self, name: str, raw: dict[str, tuple[str, bool | None]], start: int, end: int) -> Call | Fault:
        arguments: dict[str, Any] = {}
        mismatches: list[str] = []
        for key, (text, is_json) in raw.items():
            arguments[key], mismatch = self.convert(name, key, text, is_json)
            mismatches += [mismatch] if mismatch else []
        return Call((start, end), name, arguments, mismatch=" ".join(mismatches) or None)

    def convert(self, tool: str, key: str, text: str, is_json: bool | None) -> tuple[Any, str | None]:
        """Return the value of a parameter, and what does not fit."""
        return self.tools.typed(tool, key, text)
