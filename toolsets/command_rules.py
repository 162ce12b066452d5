"""Rules about commands, written as commands: ``rm -rf /``, ``git push``, ``curl``, ``mkfs*``.

A rule fits a command whose program it names, that has all its options (in any order, clustered or apart) and
all its operands. An operand that is a plain word must stand at its place (``git push`` is not found in
``git add push``); one that is a path, a URL or a glob may stand anywhere. ``*`` stays within one segment of a
path, ``**`` does not. Options and operands beyond the rule's do not matter.
"""

import posixpath
import re
import shlex
from dataclasses import dataclass
from enum import Enum
from functools import cache

from toolsets.shell_syntax import UNKNOWN, SimpleCommand, Word

LONG_OPTIONS = {
    "rm": {"--recursive": "r", "--force": "f"},
    "cp": {"--recursive": "r", "--force": "f"},
    "chmod": {"--recursive": "R"},
    "chown": {"--recursive": "R"},
    "git": {"--force": "f"},
}
"""What rules and commands spell in two ways."""

SAME_LETTER = {"rm": {"R": "r"}, "cp": {"R": "r"}}

VALUE_OPTIONS = {"git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})}
"""Options before a subcommand whose value is no operand."""


class Fit(Enum):
    """Whether a rule fits a command."""

    NO = 0
    MAYBE = 1
    """It does or not, depending on what the shell puts in."""
    YES = 2


@dataclass(frozen=True, slots=True)
class CommandRule:
    """One rule."""

    text: str
    program: str
    options: tuple[str, ...]
    places: tuple[str, ...]
    """Plain operands, in order."""
    anywhere: tuple[str, ...]
    """Globs of the other operands."""

    @classmethod
    def read(cls, text: str) -> "CommandRule":
        """Read a rule.

        Raises:
            ValueError: It is empty or its quotes are not closed.
        """
        words = shlex.split(text)
        if not words:
            raise ValueError("a rule names at least a program")
        name, *rest = words
        operands = [word for word in rest if not _is_option(word)]
        plain = [word for word in operands if re.fullmatch(r"[\w@=+-]+", word)]
        return cls(
            text,
            name,
            tuple(word for word in rest if _is_option(word)),
            tuple(plain),
            tuple(word for word in operands if word not in plain),
        )

    def fit(self, command: SimpleCommand) -> Fit:
        """Tell whether the rule fits a command."""
        first, *arguments = command.words
        if first.dynamic or first.splits:
            return Fit.MAYBE
        path = first.text
        name = posixpath.basename(path)
        if not _matches(self.program, path if "/" in self.program else name):
            return Fit.NO
        given = _Arguments.of(name, arguments)
        fits = [
            *(given.has_option(option) for option in self.options),
            *(given.has_at(index, operand) for index, operand in enumerate(self.places)),
            *(given.has_anywhere(operand) for operand in self.anywhere),
        ]
        return min(fits, key=lambda fit: fit.value, default=Fit.YES)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """A command's arguments, told apart."""

    program: str
    options: list[str]
    letters: set[str]
    operands: list[Word]
    may_hold_more: bool
    """Whether some word may turn out to be another option or operand."""

    @classmethod
    def of(cls, name: str, words: list[Word]) -> "_Arguments":
        options: list[str] = []
        letters: set[str] = set()
        operands: list[Word] = []
        only_operands = skip = False
        for word in words:
            if skip:
                skip = False
            elif word.text == "--" and not only_operands:
                only_operands = True
            elif _is_option(word.text) and not only_operands:
                options.append(word.text.partition("=")[0])
                letters |= _letters(name, word.text)
                skip = word.text in VALUE_OPTIONS.get(name, ())
            else:
                operands.append(word)
        more = any(word.dynamic and (word.splits or word.text.startswith(UNKNOWN)) for word in words)
        return cls(name, options, letters, operands, more)

    def has_option(self, option: str) -> Fit:
        letters = _letters(self.program, option)
        if option in self.options or (letters and letters <= self.letters):
            return Fit.YES
        return Fit.MAYBE if self.may_hold_more else Fit.NO

    def has_at(self, index: int, operand: str) -> Fit:
        before = self.operands[: index + 1]
        if any(word.dynamic for word in before) or (len(before) <= index and self.may_hold_more):
            return Fit.MAYBE
        return Fit.YES if len(before) > index and before[index].text == operand else Fit.NO

    def has_anywhere(self, operand: str) -> Fit:
        if any(_matches(operand, _plain_path(word.text)) for word in self.operands if not word.dynamic):
            return Fit.YES
        unknown = [word.text for word in self.operands if word.dynamic]
        return Fit.MAYBE if any(_may_match(operand, text) for text in unknown) else Fit.NO


def _is_option(text: str) -> bool:
    return len(text) > 1 and text.startswith("-")


def _letters(name: str, option: str) -> set[str]:
    """Return the one-letter options that a word stands for; none where it is a long one without a letter."""
    if option.startswith("--"):
        letter = LONG_OPTIONS.get(name, {}).get(option)
        return {letter} if letter else set()
    same = SAME_LETTER.get(name, {})
    return {same.get(letter, letter) for letter in option[1:]}


def _plain_path(text: str) -> str:
    """Return a path in its shortest form, and what is no path as it is."""
    if "/" not in text or "://" in text:
        return text
    return posixpath.normpath(re.sub("/+", "/", text))


def _matches(pattern: str, text: str) -> bool:
    return text == pattern or glob_regex(pattern).fullmatch(text) is not None


def _may_match(pattern: str, text: str) -> bool:
    """Tell whether a text could match whose unknown parts may be anything; a glob counts as unknown too."""
    if pattern != glob_literal(pattern):
        return True
    return re.fullmatch(".*".join(map(re.escape, text.split(UNKNOWN))), pattern, re.DOTALL) is not None


def glob_literal(pattern: str) -> str:
    """Return a glob's text up to its first wildcard."""
    return re.split(r"[*?]", pattern, maxsplit=1)[0]


@cache
def glob_regex(pattern: str) -> re.Pattern[str]:
    """Translate a glob: ``*`` and ``?`` stay within a path segment, ``**`` spans any number of them."""
    spelled = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(spelled.get(piece, re.escape(piece)) for piece in pieces), re.DOTALL)
