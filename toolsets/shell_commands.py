"""The commands a command line would run, those handed on to wrappers and other shells included.

``sudo timeout 5 sh -c "rm -rf /"`` holds four commands; each is found. What is handed on but can't be known
(``$CMD x``, ``curl … | sh``) is reported as unclear, and what to do about it is the policy's decision. Files
that are run (``sh build.sh``) and other languages (``python -c``) are not looked into.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from toolsets.shell_syntax import ANYTHING, AS_CODE, UNKNOWN, Redirect, SimpleCommand, Word, parse

MAX_DEPTH = 16

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh"})
SHELL_VALUES = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs the command in its own arguments."""

    values: frozenset[str] = frozenset()
    """Options that take the next word as their value."""
    operands: int = 0
    """Words of its own that precede the command."""
    asks: frozenset[str] = frozenset()
    """Options with which it only answers a question."""


def _wrapper(values: str = "", operands: int = 0, asks: str = "") -> Wrapper:
    return Wrapper(frozenset(values.split()), operands, frozenset(asks.split()))


WRAPPERS = {
    "!": _wrapper(),
    "builtin": _wrapper(),
    "busybox": _wrapper(),
    "chroot": _wrapper(operands=1),
    "command": _wrapper(asks="-v -V"),
    "coproc": _wrapper(),
    "doas": _wrapper("-u -C"),
    "env": _wrapper("-u --unset -C --chdir"),
    "exec": _wrapper("-a"),
    "flock": _wrapper("-w --timeout -E", operands=1),
    "ionice": _wrapper("-c -n -t"),
    "nice": _wrapper("-n"),
    "nohup": _wrapper(),
    "runuser": _wrapper("-u -g -G"),
    "setpriv": _wrapper("--reuid --regid --groups"),
    "setsid": _wrapper(),
    "stdbuf": _wrapper("-i -o -e"),
    "strace": _wrapper("-o -e -p -s -u"),
    "sudo": _wrapper("-u -g -h -p -C -r -t -T -D -R -U --user --group --host --prompt --chdir"),
    "taskset": _wrapper(operands=1),
    "time": _wrapper("-f -o"),
    "timeout": _wrapper("-s --signal -k --kill-after", operands=1),
    "toybox": _wrapper(),
    "unshare": _wrapper(),
    "xargs": _wrapper("-I -n -P -L -d -E -s -a --max-args --max-procs --delimiter --arg-file --replace"),
}

ON_A_STRING = {"su": "-c", "script": "-c", "flock": "-c", "env": "-S", "runuser": "-c"}
"""Programs with an option whose value is a command line."""

CODE: dict[str, Callable[[list[Word]], list[list[Word]]]] = {
    "eval": lambda words: [words],
    "watch": lambda words: [_without_options(words)],
    "parallel": lambda words: [_without_options(words)],
    "alias": lambda words: [[Word(word.text.partition("=")[2])] for word in words],
    "trap": lambda words: [_without_options(words)[:1]],
}
"""Programs whose arguments are code: which of them make up each command line."""

STREAMS = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-"})

RESERVED = frozenset(
    {"then", "do", "if", "else", "elif", "fi", "while", "until", "done", "for", "in", "case", "esac"}
    | {"function", "{", "}", "[[", "]]"}
)
"""Words of bash's grammar; where one is read as a program, the line was misread."""

FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


@dataclass(slots=True)
class Analysis:
    """What a command line would do, as far as it can be known."""

    steps: list[SimpleCommand | Redirect] = field(default_factory=list)
    """In the order they stand there, what is wrapped after what wraps it."""
    unclear: list[str] = field(default_factory=list)
    """What can't be known, each in a few words."""

    @property
    def commands(self) -> list[SimpleCommand]:
        """All commands."""
        return [step for step in self.steps if isinstance(step, SimpleCommand)]


def analyse(source: str) -> Analysis:
    """Find every command that a command line would run; never raises on any text."""
    analysis = Analysis()
    _add_source(source, analysis, 0)
    return analysis


def program(word: Word) -> str:
    """Return a program's name without its folder."""
    return posixpath.basename(word.text)


def _add_source(source: str, analysis: Analysis, depth: int) -> None:
    if depth > MAX_DEPTH:
        analysis.unclear.append("commands nested too deep")
        return
    script = parse(source)
    if script.broken:
        analysis.unclear.append(script.broken)
    for step in script.steps:
        if isinstance(step, Redirect):
            analysis.steps.append(step)
        elif step.words:
            _add_command(step, analysis, depth)


def _add_command(command: SimpleCommand, analysis: Analysis, depth: int) -> None:
    analysis.steps.append(command)
    first, *arguments = command.words
    if first.dynamic or first.splits:
        analysis.unclear.append(f"which program `{command}` runs")
        return
    name = program(first)
    if first.text in RESERVED:
        analysis.unclear.append(f"what `{first.text}` belongs to")
    elif name in SHELLS:
        _add_shell(command, analysis, depth)
    elif name == "find":
        for words in _run_by_find(arguments):
            _add_words(words, command, analysis, depth)
    elif name in (".", "source"):
        if any(word.dynamic or word.text in STREAMS for word in arguments):
            analysis.unclear.append(f"what `{command}` reads")
    elif name in CODE:
        for text in CODE[name](arguments):
            _add_text(text, analysis, depth)
    elif name in ON_A_STRING and (code := _value_of(ON_A_STRING[name], arguments)):
        _add_text([code], analysis, depth)
    elif name in WRAPPERS and (inner := _wrapped(name, arguments)):
        _add_words(inner, command, analysis, depth)
    elif name == "su" or (name in ("sudo", "doas") and {"-s", "-i"} & {word.text for word in arguments}):
        analysis.unclear.append(f"what the shell of `{command}` reads")


def _add_words(words: Iterable[Word], outer: SimpleCommand, analysis: Analysis, depth: int) -> None:
    if depth > MAX_DEPTH:
        analysis.unclear.append("commands nested too deep")
        return
    if words := tuple(words):
        _add_command(SimpleCommand(words, outer.stdin, outer.fed_by), analysis, depth + 1)


def _add_text(words: list[Word], analysis: Analysis, depth: int) -> None:
    """Read words as a command line; an unknown part of them may be anything."""
    if any(word.dynamic for word in words):
        analysis.unclear.append("a command line that is put together when it runs")
    text = " ".join(word.text for word in words)
    _add_source(text.replace(UNKNOWN, AS_CODE), analysis, depth + 1)


def _add_shell(command: SimpleCommand, analysis: Analysis, depth: int) -> None:
    arguments = list(command.words[1:])
    operands = _operands(arguments, SHELL_VALUES)
    options = arguments[: len(arguments) - len(operands)]
    if any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text) for word in options):
        if operands:
            _add_text(operands[:1], analysis, depth)
    elif any(word.dynamic or word.text in STREAMS for word in arguments):
        analysis.unclear.append(f"what `{command}` runs")
    elif not operands or any(word.text == "-s" for word in options):
        _add_stdin(command, analysis, depth)


def _add_stdin(command: SimpleCommand, analysis: Analysis, depth: int) -> None:
    """Read what a shell is given on its standard input, where the command line itself says what that is."""
    if command.stdin is not None:
        _add_source(command.stdin, analysis, depth + 1)
        return
    texts = [_printed(stage) for stage in command.fed_by]
    if not texts or None in texts:
        analysis.unclear.append(f"what `{command}` reads")
    for text in texts:
        if text is not None:
            _add_source(text, analysis, depth + 1)


def _printed(stage: SimpleCommand) -> str | None:
    """Return what a stage of a pipeline prints; None where the command line does not say."""
    name, *arguments = (word.text for word in stage.words)
    if any(word.dynamic for word in stage.words):
        return None
    text = None
    if name == "cat" and not arguments:
        text = stage.stdin
    elif name == "echo":
        text = " ".join(word for word in arguments if word != "-n")
    elif name == "printf":
        text = "\n".join(arguments).replace("\\n", "\n").replace("%s", " ")
    return None if text is None or (name != "cat" and re.search(r"\\|%|^-e", text)) else text


def _without_options(words: list[Word]) -> list[Word]:
    return [word for word in words if not word.text.startswith("-")]


def _operands(words: list[Word], values: frozenset[str]) -> list[Word]:
    """Return the words from the first that is neither an option nor an option's value."""
    index = 0
    while index < len(words):
        text = words[index].text
        if text == "--":
            return words[index + 1 :]
        if len(text) < 2 or text[0] not in "-+":
            return words[index:]
        takes_next = text in values or (
            text[1] != "-" and f"-{text[-1]}" in values and text[:2] not in values
        )
        index += 2 if takes_next else 1
    return []


def _wrapped(name: str, arguments: list[Word]) -> list[Word]:
    """Return the command in a wrapper's arguments."""
    wrapper = WRAPPERS[name]
    if wrapper.asks & {word.text for word in arguments}:
        return []
    words = _operands(arguments, wrapper.values)[wrapper.operands :]
    while words and re.match(r"[A-Za-z_]\w*=", words[0].text):
        words = words[1:]
    return [*words, ANYTHING] if words and name == "xargs" else words


def _run_by_find(words: list[Word]) -> list[list[Word]]:
    runs: list[list[Word]] = []
    current: list[Word] | None = None
    for word in words:
        if current is None:
            if word.text in FIND_RUNS:
                current = []
                runs.append(current)
        elif word.text in (";", "+"):
            current = None
        else:
            current.append(ANYTHING if "{}" in word.text else word)
    return runs


def _value_of(option: str, words: list[Word]) -> Word | None:
    """Return what follows an option, apart or attached."""
    for word, after in zip(words, [*words[1:], None], strict=False):
        if word.text == option:
            return after
        if word.text.startswith(option):
            return Word(word.text.removeprefix(option), word.splits)
    return None
