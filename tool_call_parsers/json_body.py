"""The JSON value that begins at a position: its end and its content.

The end is found by scanning the JSON, never by searching the closing marker: a marker inside a string is
data. Where all of a value is at hand the C scanner does both at once. Otherwise a scanner that resumes counts
brackets until the value is whole, and stops at the first character that no JSON can have there, so that a
broken body neither swallows its siblings nor costs a scan to the end of the text.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, cast

import msgspec

from tool_call_parsers.source import Markers, Source, Steps

MAX_DEPTH = 200
"""Deepest nesting accepted; the decoder's own limit depends on the interpreter's stack."""

_PATIENCE = 8
"""After so many bodies that are no JSON a text is not given to the C scanner any more before brackets were
counted: its error counts the lines from the beginning of the text, which many times over is quadratic."""

_STRUCTURE = re.compile(r"[ \t\r\n0-9,:+\-.eEtrufalsn]*")
_STRING = {q: re.compile(rf"[^{q}\\\x00-\x1f]*+(?:\\.[^{q}\\\x00-\x1f]*+)*+", re.DOTALL) for q in "\"'"}
"""The inside of a string; possessive, so that it never backtracks."""

_WORDS = Markers(("None", "True", "False", "NaN", "Infinity", "undefined"))
"""Words of other languages: no JSON, yet no reason to lose the end of the value."""

_BLANK = re.compile(r"[ \t\r\n]*")


class JsonValue(NamedTuple):
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
_scan_once: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # pyright: ignore
"""What ``raw_decode`` calls; raises ``StopIteration`` where no value begins."""


_decode_whole: Callable[[str], Any] = msgspec.json.Decoder().decode


def decode_json(text: str) -> Any:
    """Return the value of a text that is JSON as a whole; None where it is not."""
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return None


def json_at_hand(src: Source, pos: int) -> tuple[Any, int] | None:
    """Return the value that begins at ``pos`` and its end, if all of it is there and nothing is wrong."""
    if src.bad_json > _PATIENCE:
        return None
    try:
        value, end = _last_value(src, pos) or _scan_once(src.text, pos)
    except (ValueError, StopIteration, RecursionError):
        src.bad_json += 1
        return None
    if end - pos > 2 * MAX_DEPTH and _too_deep(value):
        return None
    return value, end


def _last_value(src: Source, pos: int) -> tuple[Any, int] | None:
    """Return the value at ``pos`` if it ends with the last brace of the text, as that of the only call does.

    That it can be decoded proves the end, and msgspec decodes twice as fast as what finds an end by itself.
    It is tried once in a text. Whatever msgspec refuses is left to the scanner, which takes a little more.
    """
    if src.guessed or not src.ended:
        return None
    src.guessed = True
    end = src.text.rfind("}", pos) + 1
    try:
        return _decode_whole(src.text[pos:end]), end
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def read_json(src: Source, pos: int) -> Steps[JsonValue | JsonFault]:
    """Wait for the object or array that begins at ``pos``."""
    if whole := json_at_hand(src, pos):
        return JsonValue(*whole)
    if fault := src.unclosed.get(pos):
        return fault
    scan = Scan(pos)
    while not scan.advance(src.text):
        if src.ended:
            break
        yield
    if not scan.open:
        end = scan.pos
        return JsonFault(scan.fault, end, end=end) if scan.fault else _decoded(src.text[pos:end], end)
    if scan.fault:
        fault = JsonFault(scan.fault, scan.resume)
    else:
        fault = JsonFault("The JSON is not complete: the text ends inside it.", len(src.text), ended=True)
    src.unclosed = dict.fromkeys(scan.open, fault)
    return fault


def _decoded(text: str, end: int) -> JsonValue | JsonFault:
    """Decode what is a value by its brackets, the last one before ``end``."""
    try:
        return JsonValue(_decoder.decode(text), end)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error)
    return JsonFault(f"The JSON is not valid: {reason}.", end, end=end)


def _too_deep(value: dict[str, Any] | list[Any], levels: int = MAX_DEPTH) -> bool:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)) and (levels == 1 or _too_deep(cast(Any, item), levels - 1)):
            return True
    return False


class Scan:
    """Bracket counting over JSON text that grows."""

    __slots__ = ("_closed_string", "_failed", "_string", "fault", "open", "pos", "resume")

    def __init__(self, pos: int):
        self.pos = pos
        self.fault: str | None = None
        """What is wrong; there may be an end nevertheless."""
        self.resume = pos
        """Where that stands."""
        self._failed = False
        self.open: list[int] = []
        """Where the brackets stand that are still open."""
        self._string: int | None = None
        """Where the string begins that ``pos`` is in."""
        self._closed_string: int | None = None
        """Where the string begins that ended just before ``pos``."""

    def advance(self, text: str) -> bool:
        """Go on through ``text``; True once the value is whole or its end cannot be told."""
        while not self._failed:
            if self._string is not None:
                waiting = self._in_string(text, self._string)
            else:
                waiting = self._between(text)
                if not self.open and not waiting:
                    return True
            if waiting:
                return False
        return True

    def _in_string(self, text: str, start: int) -> bool:
        """Go on to the string's end; True if the text at hand ends first."""
        self.pos = pos = _end_of(_STRING[text[start]], text, self.pos)
        if pos == len(text) or text[pos] == "\\":
            return True
        self.pos = pos + 1
        if text[pos] == text[start]:
            self._string, self._closed_string = None, start
        else:
            self._note("a string holds a line break or control character; write it escaped, as \\n", start)
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
        if char in _STRING:
            self._string = pos
            if char == "'":
                self._note("a string stands between single quotes, not double ones", pos)
        elif char in "{[":
            self.open.append(pos)
            if len(self.open) > MAX_DEPTH:
                self._fail(f"it is nested more than {MAX_DEPTH} levels deep", pos)
        elif char in "}]":
            self.open.pop()
        elif char not in ",:":
            return self._strange(text, pos)
        return False

    def _strange(self, text: str, pos: int) -> bool:
        """Pass over a word of another language, and fail at all else; True if the text at hand ends first."""
        if word := _WORDS.pattern.match(text, pos):
            self.pos = word.end()
            self._note(f"{word.group()} is no JSON", pos)
        elif _WORDS.held_from(text, pos) == pos:
            self.pos = pos
            return True
        else:
            self._fail(f"{text[pos]!r} stands where a value, a comma or a closing bracket belongs", pos)
        return False

    def _note(self, what: str, pos: int) -> None:
        if self.fault is None:
            self.fault, self.resume = f"The JSON is not valid: {what}.", pos

    def _fail(self, what: str, pos: int) -> None:
        self._note(what, pos)
        self._failed = True


def _end_of(pattern: re.Pattern[str], text: str, pos: int) -> int:
    found = pattern.match(text, pos)
    return found.end() if found else pos
