"""The files a command line names, and what it does with them.

Known are redirections, ``cd``, and the programs that change files; of other programs the operands are only
mentions, which matter where a file must not even be named. What a program does with files it finds by itself
is not known.
"""

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from toolsets.shell_commands import Analysis, program
from toolsets.shell_syntax import Redirect, SimpleCommand, Word

PathUse = Literal["read", "write", "remove", "mention"]

NO_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero"})

ONLY_TEXT = frozenset({"echo", "printf"})
"""Programs whose operands are no paths."""


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path as it stands in a call."""

    text: str
    use: PathUse
    base: str | None = ""
    """Where a relative one begins, itself relative to where the call runs; None where that is not known."""
    globs: bool = False
    """Whether the shell replaces it with the files it finds."""
    in_shell: bool = False
    """Whether a shell reads it, for which ``~`` is the home folder."""
    known: bool = True
    """Whether the text is all of it."""


def paths_in(analysis: Analysis) -> Iterator[NamedPath]:
    """Yield the paths of a command line in order, each from where ``cd`` has gone by then."""
    base: str | None = ""
    for step in analysis.steps:
        if isinstance(step, Redirect):
            if step.target.text not in NO_FILES:
                yield _named(step.target, step.use, base)
            continue
        name = program(step.words[0])
        for word, use in _uses(name, step):
            yield _named(word, use, base)
        if name in ("cd", "pushd"):
            base = _moved(base, step)


def _named(word: Word, use: PathUse, base: str | None) -> NamedPath:
    return NamedPath(word.text, use, base, word.globs, in_shell=True, known=not word.dynamic)


def _moved(base: str | None, command: SimpleCommand) -> str | None:
    targets = _operands(command)
    target = targets[0].text if targets else "~"
    if base is None or (targets and targets[0].dynamic) or target == "-":
        return None
    return posixpath.join(base, target)


def _uses(name: str, command: SimpleCommand) -> list[tuple[Word, PathUse]]:
    if name in ONLY_TEXT:
        return []
    operands = _operands(command)
    if name in USES:
        return USES[name](command, operands)
    return [(word, "mention") for word in operands]


def _operands(command: SimpleCommand) -> list[Word]:
    words = command.words[1:]
    ends = next((index for index, word in enumerate(words) if word.text == "--"), len(words))
    options_over = words[ends + 1 :]
    return [word for word in words[:ends] if not word.text.startswith("-") or word.text == "-"] + list(
        options_over
    )


Uses = Callable[[SimpleCommand, list[Word]], list[tuple[Word, PathUse]]]


def _all(use: PathUse, skip: int = 0) -> Uses:
    return lambda command, operands: [(word, use) for word in operands[skip:]]


def _copied(command: SimpleCommand, operands: list[Word]) -> list[tuple[Word, PathUse]]:
    """Sources are read, the last operand or ``-t DIR`` is written."""
    options = [word.text for word in command.words]
    if "-t" in options or any(text.startswith("--target-directory") for text in options):
        return [(word, "write") for word in operands]
    return [*((word, "read") for word in operands[:-1]), *((word, "write") for word in operands[-1:])]


def _moved_files(command: SimpleCommand, operands: list[Word]) -> list[tuple[Word, PathUse]]:
    return [(word, "remove") for word in operands]


def _sed(command: SimpleCommand, operands: list[Word]) -> list[tuple[Word, PathUse]]:
    options = [word.text for word in command.words[1:] if word.text.startswith("-")]
    script_apart = any(text in ("-e", "-f", "--expression", "--file") for text in options)
    in_place = any(text.startswith(("-i", "--in-place")) for text in options)
    use: PathUse = "write" if in_place else "mention"
    return [(word, use) for word in operands[0 if script_apart else 1 :]]


def _dd(command: SimpleCommand, operands: list[Word]) -> list[tuple[Word, PathUse]]:
    uses: dict[str, PathUse] = {"of": "write", "if": "read"}
    parts = [(word.text.partition("="), word) for word in operands]
    return [(Word(value, word.splits), uses[key]) for (key, _, value), word in parts if key in uses]


USES: dict[str, Uses] = {
    **dict.fromkeys(("cd", "pushd"), _all("read")),
    **dict.fromkeys(("tee", "touch", "mkdir", "truncate"), _all("write")),
    **dict.fromkeys(("rm", "rmdir", "unlink", "shred"), _all("remove")),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _all("write", skip=1)),
    **dict.fromkeys(("cp", "ln", "install"), _copied),
    "mv": _moved_files,
    "sed": _sed,
    "dd": _dd,
}
