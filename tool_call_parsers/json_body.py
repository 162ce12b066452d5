"""The JSON value that begins at a position: its end and its content.

The end is found by scanning the JSON, never by searching the closing marker: a marker inside a string is
data. Where all of a value is at hand the C decoder does both at once. Otherwise a scanner that resumes counts
brackets until the value is whole, and stops at the first character that no JSON can have there, so that a
broken body neither swallows its siblings nor costs a scan to the end of the text.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from tool_call_parsers.source import Source, Steps

MAX_DEPTH = 200
"""Deepest nesting accepted; the decoder's own limit depends on the interpreter's stack."""

_STRUCTURE = re.compile(r"[ \t\r\n0-9,:+\-.eEtrufalsn]*")
_STRING = re.compile(r'[^"\\\x00-\x1f]*')
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A whole value and where it ends."""

    value: Any
    end: int


@dataclass(frozen=True, slots=True)
class JsonFault:
    """A value that is none."""

    message: str
    resume: int
    """Where to look for the end of the block; at or before what cannot be JSON."""
    ended: bool = False
    """Whether the text ended inside the value, with nothing wrong so far."""
    end: int | None = None
    """Where the value ends by its brackets, where they can be trusted."""


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits} is too large")
    return value


_decoder = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_finite)


def decode_json(text: str) -> Any:
    """Return the value of a text that is JSON as a whole; None where it is not."""
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return None


def read_json(src: Source, pos: int) -> Steps[JsonValue | JsonFault]:
    """Wait for the object or array that begins at ``pos``."""
    whole = _try_decode(src.text, pos)
    if isinstance(whole, JsonValue) and not _too_deep(whole, src.text, pos):
        return whole
    scan = Scan(pos)
    while not scan.advance(src.text):
        if src.ended:
            return JsonFault("The JSON is not complete: the text ends inside it.", len(src.text), ended=True)
        yield
    if scan.fault:
        return JsonFault(scan.fault, scan.resume)
    value = _try_decode(src.text, pos)
    return value if isinstance(value, JsonValue) else JsonFault(value, scan.pos, end=scan.pos)


def _try_decode(text: str, pos: int) -> JsonValue | str:
    try:
        value, end = _decoder.raw_decode(text, pos)
    except json.JSONDecodeError as error:
        return f"The JSON is not valid: {error.msg} at character {error.pos - pos}."
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return f"The JSON is not valid: {reason}."
    return JsonValue(value, end)


def _too_deep(found: JsonValue, text: str, pos: int) -> bool:
    if text.count("[", pos, found.end) + text.count("{", pos, found.end) <= MAX_DEPTH:
        return False
    level = [found.value]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _items(value) if isinstance(item, dict | list)]
    return bool(level)


def _items(value: Any) -> Iterable[Any]:
    return cast(dict[str, Any], value).values() if isinstance(value, dict) else cast(list[Any], value)


class Scan:
    """Bracket counting over JSON text that grows."""

    __slots__ = ("_closed_string", "_depth", "_string", "fault", "pos", "resume")

    def __init__(self, pos: int):
        self.pos = pos
        self.fault: str | None = None
        self.resume = pos
        self._depth = 0
        self._string: int | None = None
        """Where the string begins that ``pos`` is in."""
        self._closed_string: int | None = None
        """Where the string begins that ended just before ``pos``."""

    def advance(self, text: str) -> bool:
        """Go on through ``text``; True once the value is whole or cannot be JSON."""
        while not self.fault:
            if self._string is not None:
                waiting = self._in_string(text, self._string)
            else:
                waiting = self._between(text)
                if self._depth == 0 and not waiting:
                    return True
            if waiting:
                return False
        return True

    def _in_string(self, text: str, start: int) -> bool:
        """Go on to the string's end; True if the text at hand ends first."""
        self.pos = pos = _end_of(_STRING, text, self.pos)
        if pos == len(text) or (text[pos] == "\\" and pos + 1 == len(text)):
            return True
        if text[pos] == "\\":
            self.pos = pos + 2
        elif text[pos] == '"':
            self.pos, self._string, self._closed_string = pos + 1, None, start
        else:
            self._fail("a string holds a line break or control character; write it escaped, as \\n", start)
        return False

    def _between(self, text: str) -> bool:
        """Go on to the next bracket or string; True if the text at hand ends first."""
        after_string = self._closed_string is not None
        self.pos = pos = _end_of(_BLANK if after_string else _STRUCTURE, text, self.pos)
        if pos == len(text):
            return True
        char = text[pos]
        if self._closed_string is not None:
            if char not in ",:]}":
                self._fail(
                    'after a string comes neither "," nor ":" nor a closing bracket', self._closed_string
                )
                return False
            self._closed_string = None
        self.pos = pos + 1
        if char == '"':
            self._string = pos
        elif char in "{[":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                self._fail(f"it is nested more than {MAX_DEPTH} levels deep", pos)
        elif char in "}]":
            self._depth -= 1
        elif char not in ",:":
            self._fail(f"{char!r} stands where a value, a comma or a closing bracket belongs", pos)
        return False

    def _fail(self, what: str, resume: int) -> None:
        self.fault, self.resume = f"The JSON is not valid: {what}.", resume


def _end_of(pattern: re.Pattern[str], text: str, pos: int) -> int:
    found = pattern.match(text, pos)
    return found.end() if found else pos
