"""Python and JSON literals as calls hold them, read without evaluating anything.

``ast`` would do for well-formed text, but it changes line endings, fails on NUL and lone surrogates and on
depth by crashing, and cannot say where a broken call ends.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tool_call_parsers.source import Markers, Source, Steps

_MAX_DEPTH = 100
"""Deepest nesting accepted: the reader recurses."""

_BLANK = re.compile(r"\s*")
_STRING = {q: re.compile(rf"[^{q}\\\r\n]*+(?:\\[^\r\n][^{q}\\\r\n]*+)*+") for q in "'\""}
"""The inside of a string; possessive, so that it never backtracks."""

_ON_LINES = {q: re.compile(rf"[^{q}\\]*+(?:\\.[^{q}\\]*+)*+", re.DOTALL) for q in "'\""}
"""The same with line breaks in it, which is wrong, yet shows where the string ends."""

_LONG_STRING = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.|{quote}{quote}?(?=[^{quote}]))*+", re.DOTALL)
    for quote in "'\""
}
"""The inside of a string between three quotes; quotes at the end of the text may still be its end."""

_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r?\n|.)")
_NUMBER = re.compile(r"[+-]?\d*(?:\.\d*)?(?:[eE][+-]?\d+)?")
_PYTHON_INTEGER = re.compile(r"[+-]?0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)|[+-]?[1-9]\d*(?:_\d+)+")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9]\d*)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a",
    "\\": "\\", "'": "'", '"': '"', "\n": "", "\r\n": "",
}  # fmt: skip
_OCTAL, _HEX = "01234567", "xuU"


class NotALiteral(ValueError):
    """The text is no literal; the message says what is wrong with it."""


class Literals:
    """A reader of literals over one text."""

    escapes = _ESCAPES

    def __init__(self, text: str):
        self.text = text
        self.pos = 0

    def keyword_arguments(self) -> dict[str, Any]:
        """Read ``a=1, b='x'`` up to the end of the text."""
        arguments: dict[str, Any] = {}
        while self._peek():
            name = _WORD.match(self.text, self.pos)
            if name is None:
                raise NotALiteral("arguments are written name=value")
            self.pos = name.end()
            if self._peek() != "=":
                raise NotALiteral("arguments are written name=value, not by position")
            self.pos += 1
            if name[0] in arguments:
                raise NotALiteral(f"the argument {name[0]!r} is given twice")
            arguments[name[0]] = self.value(0)
            if self._peek() == ",":
                self.pos += 1
            elif self._peek():
                raise NotALiteral(f"after the argument {name[0]!r} a comma is missing")
        return arguments

    def only_string(self) -> str:
        """Read one string that is all of the text."""
        value = self._string(self.text[:1]) if self.text[:1] in _STRING else None
        if value is None or self.pos < len(self.text):
            raise NotALiteral("it is not one string")
        return value

    def value(self, depth: int) -> Any:
        """Read one value."""
        if depth > _MAX_DEPTH:
            raise NotALiteral(f"it is nested more than {_MAX_DEPTH} levels deep")
        char = self._peek()
        if char and char in "'\"":
            return self._strings()
        if char == "(":
            return self._parenthesized(depth)
        if char == "[":
            return self._sequence("]", lambda: self.value(depth + 1))
        if char == "{":
            return dict(self._sequence("}", lambda: self._pair(depth + 1)))
        if word := _WORD.match(self.text, self.pos):
            self.pos = word.end()
            if word[0] not in _WORDS:
                raise NotALiteral(f"{word[0]!r} is no literal: write strings in quotes")
            return _WORDS[word[0]]
        return self._number()

    def _peek(self) -> str:
        blank = _BLANK.match(self.text, self.pos)
        self.pos = blank.end() if blank else self.pos
        return self.text[self.pos : self.pos + 1]

    def _pair(self, depth: int) -> tuple[str, Any]:
        key = self.value(depth)
        if not isinstance(key, str) or self._peek() != ":":
            raise NotALiteral("an object has string keys, each followed by a colon")
        self.pos += 1
        return key, self.value(depth)

    def _sequence(self, closer: str, item: Callable[[], Any]) -> list[Any]:
        self.pos += 1
        items: list[Any] = []
        while self._peek() != closer:
            items.append(item())
            if self._peek() == ",":
                self.pos += 1
            elif self._peek() != closer:
                raise NotALiteral(f"{closer!r} or a comma is missing")
        self.pos += 1
        return items

    def _parenthesized(self, depth: int) -> Any:
        """Read a tuple, told as a list, or a value in parentheses."""
        items = self._sequence(")", lambda: self.value(depth + 1))
        last = self.pos - 2
        while self.text[last].isspace():
            last -= 1
        return items[0] if len(items) == 1 and self.text[last] != "," else items

    def _number(self) -> int | float:
        python = _PYTHON_INTEGER.match(self.text, self.pos)
        found = python or _NUMBER.match(self.text, self.pos)
        digits = found[0] if found else ""
        self.pos += len(digits)
        try:
            value = int(digits, 0) if python or _INTEGER.fullmatch(digits) else float(digits)
        except ValueError:
            raise NotALiteral(f"{self.text[self.pos : self.pos + 20]!r} is no literal") from None
        if isinstance(value, float) and (math.isinf(value) or digits.lstrip("+-").isdigit()):
            raise NotALiteral(f"{digits} is no number: write strings in quotes")
        return value

    def _strings(self) -> str:
        """Read a string, or several in a row, which are one."""
        parts = [self._string(self.text[self.pos])]
        while (quote := self._peek()) and quote in "'\"":
            parts.append(self._string(quote))
        return "".join(parts)

    def _string(self, quote: str) -> str:
        long = self.text.startswith(quote * 3, self.pos)
        delimiter = quote * 3 if long else quote
        start = self.pos + len(delimiter)
        body = (_LONG_STRING if long else _STRING)[quote].match(self.text, start)
        end = body.end() if body else start
        if not self.text.startswith(delimiter, end):
            raise NotALiteral("a string is not closed on its line: write line breaks as \\n")
        text, self.pos = self.text[start:end], end + len(delimiter)
        return _joined_surrogates(_ESCAPE.sub(self._unescaped, text)) if "\\" in text else text

    def _unescaped(self, escape: re.Match[str]) -> str:
        code = escape[1]
        if code[0] in _OCTAL:
            return chr(int(code, 8))
        if code[0] in _HEX and len(code) > 1:
            return chr(int(code[1:], 16)) if int(code[1:], 16) <= 0x10FFFF else escape[0]
        return self.escapes.get(code, escape[0])


class JsonLiterals(Literals):
    """A reader that knows JSON's escape of the slash, too."""

    escapes = {**_ESCAPES, "/": "/"}  # noqa: RUF012


def _joined_surrogates(text: str) -> str:
    """Join the halves of characters that were written as two escapes."""
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


BRACKETS = ("(", ")", "[", "]", "{", "}", "'", '"')
"""What ``read_group`` looks for."""
_BRACKETS = Markers(BRACKETS)


@dataclass(frozen=True, slots=True)
class Group:
    """Where the parenthesis that opens at a position closes, or what is wrong."""

    end: int
    fault: str | None = None
    """What is wrong; ``end`` is then where to look for the end of the block."""
    cut: bool = False
    """Whether the text ended inside the group."""


def read_group(src: Source, pos: int, marks: Markers = _BRACKETS) -> Steps[Group]:
    """Wait for the end of the parenthesis that begins at ``pos``, with its strings passed over.

    Args:
        src: The text.
        pos: Where the parenthesis opens.
        marks: ``BRACKETS`` and what cannot stand between them outside of a string.
    """
    depth = 0
    while mark := (yield from src.until(marks, pos)):
        pos = mark.end()
        if (quote := mark.group()) in _STRING:
            while len(src.text) < pos + 2 and not src.ended:
                yield
            if src.text.startswith(quote * 2, pos):
                end = yield from _long_string_end(src, pos + 2, quote)
            else:
                end = yield from _string_end(src, pos, quote)
                on_lines = src.text.find("\n", pos, end) >= 0 or src.text.find("\r", pos, end) >= 0
                if on_lines and (end is None or not (yield from _goes_on(src, end))):
                    return Group(mark.start(), "a string is not closed on its line: write line breaks as \\n")
            if end is None:
                return Group(len(src.text), "the text ends inside a string", cut=True)
            pos = end
        elif quote not in BRACKETS:
            return Group(mark.start(), f"{quote} stands in them")
        else:
            depth += 1 if mark.group() in "([{" else -1
            if depth == 0 and mark.group() != ")":
                return Group(mark.start(), f"{mark.group()!r} stands where ')' belongs")
            if depth == 0:
                return Group(pos)
    return Group(len(src.text), "the text ends inside the arguments", cut=True)


def _long_string_end(src: Source, pos: int, quote: str) -> Steps[int | None]:
    """Wait for the end of a string between three quotes; None where the text ends first."""
    while True:
        pos = yield from src.past(_LONG_STRING[quote], pos)
        if src.text.startswith(quote * 3, pos):
            return pos + 3
        if src.ended:
            return None
        yield


def _string_end(src: Source, pos: int, quote: str) -> Steps[int | None]:
    """Wait for the end of a string; None where the text ends first."""
    while True:
        pos = yield from src.past(_ON_LINES[quote], pos)
        if src.text.startswith(quote, pos):
            return pos + 1
        if src.ended:
            return None
        yield


def _goes_on(src: Source, pos: int) -> Steps[bool]:
    """Tell whether at ``pos`` the arguments go on after a string."""
    pos = yield from src.past_blank(pos)
    return src.text.startswith((",", ":", ")", "]", "}"), pos)
