"""What stands in prose: a marker that is only mentioned is no call."""

import re

_FENCE = "```"


def starts_line(text: str, pos: int) -> bool:
    """Tell whether only blanks stand between the beginning of the line and ``pos``."""
    before = blanks_before(text, pos)
    return before == 0 or text[before - 1] in "\r\n"


def blanks_before(text: str, pos: int) -> int:
    """Return where the blanks begin that stand on the same line right before ``pos``."""
    while pos and text[pos - 1] in " \t":
        pos -= 1
    return pos


_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”"}
_BEFORE_CLOSING = re.compile(r"[^\W\u2e80-\u9fff]|[.,;!?…%/)\]}]")
"""After these a mark ends a quotation. Chinese and Japanese put no blank before one that opens."""


def after_quote(text: str, pos: int) -> bool:
    """Tell whether a quotation mark that may open a quotation stands right before ``pos``."""
    mark = text[pos - 1 : pos]
    return mark in _QUOTES and (mark == "“" or pos == 1 or not _BEFORE_CLOSING.match(text, pos - 2))


def in_quotes(text: str, start: int, end: int) -> bool:
    """Tell whether a quotation mark stands right before ``start`` and its other half right after ``end``."""
    return text[end : end + 1] == _QUOTES.get(text[start - 1 : start], "no mark")


class Quotes:
    """Whether a position in growing prose stands inside a code fence or an inline code span."""

    __slots__ = ("_begin", "_fenced", "_inline", "_pos")

    def __init__(self, pos: int):
        self.begin(pos)

    def begin(self, pos: int) -> None:
        """Begin with the text that begins at ``pos``."""
        self._begin = pos
        self.restart(pos)

    def restart(self, pos: int) -> None:
        """Begin anew at ``pos``, outside of any quote."""
        self._pos, self._fenced, self._inline = pos, False, False

    def closer_at(self, text: str, pos: int) -> str | None:
        """Return what would end the quote that ``pos`` stands in; None outside of quotes."""
        if not self._fenced and not self._inline and text.find("`", self._pos, pos) < 0:
            self._pos = pos
            return None
        lines = text[self._pos : pos].split("\n")
        whole_line = self._pos == self._begin or starts_line(text, self._pos)
        self._pos = pos
        for number, line in enumerate(lines):
            if number:
                whole_line, self._inline = True, False
            if whole_line and line.lstrip().startswith(_FENCE):
                self._fenced = not self._fenced
            elif not self._fenced and line.count("`") % 2:
                self._inline = not self._inline
            whole_line = False
        return f"\n{_FENCE}" if self._fenced else "`" if self._inline else None
