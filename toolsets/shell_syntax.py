r"""A shell command line as the simple commands in it, wherever they stand.

Nothing is expanded. A word whose value only the shell will know is `dynamic`: its unknown parts are marked
and never guessed. Quotes and backslashes are taken off as bash does it, so ``r''m`` and ``\rm`` are ``rm``.
Text that does not parse is said to be `broken`; what could be read of it is still there.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from tree_sitter import Language, Node, Parser

MAX_CHARS = 100_000
MAX_STEPS = 2000
MAX_STAGES = 32
"""Longest pipeline of which a command knows what feeds it."""

UNKNOWN = "\0"
"""Stands in a word for what only the shell will know; bash itself can hold no such character."""

EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})

SKIPPED = frozenset({"comment", "string_content"})

NOT_A_STAGE = frozenset({"command", "file_redirect", "heredoc_body", "heredoc_start", "heredoc_end"})


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    """Its value, `UNKNOWN` in place of each part that is not known."""
    splits: bool = False
    """Whether it may become several words, or none: an unquoted expansion, a glob or braces."""

    @property
    def dynamic(self) -> bool:
        """Whether its value is not fully known."""
        return UNKNOWN in self.text

    @property
    def globs(self) -> bool:
        """Whether its value is known but for the files that bash will find for it."""
        return self.splits and not self.dynamic


ANYTHING = Word(UNKNOWN, splits=True)

AS_CODE = "$UNKNOWN"
"""What is not known, in text that is read as code."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that a command's input or output is."""

    target: Word
    use: Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program or builtin with its arguments."""

    words: tuple[Word, ...]
    """The first is the program; assignments before it are left out."""
    stdin: str | None = None
    """Text of its here-document or here-string."""
    fed_by: tuple["SimpleCommand", ...] = ()
    """The stages before it in its pipeline."""

    def __str__(self) -> str:
        return " ".join(word.text.replace(UNKNOWN, "…") for word in self.words)


NOT_KNOWN = SimpleCommand((ANYTHING,))


@dataclass(slots=True)
class Script:
    """What was found in a command line."""

    steps: list[SimpleCommand | Redirect] = field(default_factory=list)
    """In the order it stands there."""
    broken: str | None = None
    """Why it could not be read to its end."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A node on the way, and what stands around it that its command will read."""

    node: Node
    stdin: str | None = None
    feed: list[SimpleCommand] | None = None
    """Stages of its pipeline, filled as they are met."""


def parse(source: str) -> Script:
    """Read a command line; never raises on any text."""
    if len(source) > MAX_CHARS:
        return Script(broken=f"longer than {MAX_CHARS} characters")
    root = _parser().parse(source.encode("utf-8", "replace")).root_node
    script = Script(broken="not valid shell syntax" if root.has_error else None)
    stack = [_Place(root)]  # no recursion: nesting is as deep as a model likes
    while stack:
        place = stack.pop()
        if place.node.type == "command":
            command = _command(place)
            script.steps.append(command)
            if place.feed is not None:
                place.feed.append(command)
        elif place.node.type == "file_redirect" and (redirect := _redirect(place.node)):
            script.steps.append(redirect)
        if len(script.steps) > MAX_STEPS:
            script.broken = f"more than {MAX_STEPS} commands"
            break
        stack.extend(reversed(_inner(place)))
    return script


def _inner(place: _Place) -> list[_Place]:
    """Return a node's children, each with what it reads."""
    node = place.node
    if node.type in SKIPPED:
        return []
    if node.type in ("pipeline", "list"):
        feed = place.feed if node.type == "list" or place.feed is not None else []
        parts = node.named_children
        last = parts[-1] if parts else None
        return [_Place(part, place.stdin if part is last else None, feed) for part in parts]
    if node.type == "redirected_statement":
        stdin = _redirected_stdin(node)
        heredoc = any(child.type == "heredoc_redirect" for child in node.children)
        feed = [] if place.feed is None and heredoc else place.feed
        return [_Place(child, place.stdin if stdin is None else stdin, feed) for child in node.children]
    if node.type in ("heredoc_redirect", "negated_command"):
        return [_Place(child, None, place.feed) for child in node.children]
    if place.feed is not None and node.is_named and node.type not in NOT_A_STAGE:
        place.feed.append(NOT_KNOWN)
    return [_Place(child) for child in node.children]


@cache
def _parser() -> Parser:
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


def _command(place: _Place) -> SimpleCommand:
    words: list[Word] = []
    stdin = place.stdin
    for child in place.node.named_children:
        if child.type == "command_name":
            words.append(_word(child.named_children[0]) if child.named_children else ANYTHING)
        elif child.type == "herestring_redirect":
            stdin = _here_string(child)
        elif child.type not in ("variable_assignment", "file_redirect", "heredoc_redirect", "comment"):
            words.append(_word(child))
    fed_by = place.feed or []
    return SimpleCommand(tuple(words), stdin, tuple(fed_by) if len(fed_by) <= MAX_STAGES else (NOT_KNOWN,))


def _redirected_stdin(node: Node) -> str | None:
    """Return what a redirected statement's last command reads; None where that is not redirected."""
    for redirect in node.children_by_field_name("redirect"):
        if redirect.type == "heredoc_redirect":
            return "".join(_text(child) for child in redirect.named_children if child.type == "heredoc_body")
        if redirect.type == "herestring_redirect":
            return _here_string(redirect)
        if any(child.type in ("<", "<&", "<>") for child in redirect.children):
            return AS_CODE
    return None


def _here_string(node: Node) -> str:
    return _word(node.named_children[0]).text.replace(UNKNOWN, AS_CODE) if node.named_children else ""


def _redirect(node: Node) -> Redirect | None:
    """Return the file of a redirection; None where it only copies or closes a channel."""
    operator = next((child.type for child in node.children if not child.is_named), "")
    target = node.child_by_field_name("destination")
    if target is None or target.type == "process_substitution":
        return None
    word = _word(target)
    if operator in (">&", "<&") and re.fullmatch(r"\d*-?", word.text):
        return None
    return Redirect(word, "read" if operator in ("<", "<&") else "write")


def _word(node: Node) -> Word:
    match node.type:
        case "word" | "number" | "variable_name" | "special_variable_name":
            return _bare(_text(node))
        case "raw_string":
            return Word(_text(node)[1:-1])
        case "string" | "translated_string":
            return Word(_double_quoted(node))
        case "ansi_c_string":
            return Word(_ansi_c(_text(node)[2:-1]))
        case "concatenation":
            parts = [_word(child) for child in node.children]
            text = "".join(part.text for part in parts)
            braces = any(child.type == "word" and _text(child) == "{" for child in node.children)
            return Word(UNKNOWN if braces else text, braces or any(part.splits for part in parts))
        case _:
            return ANYTHING


def _bare(text: str) -> Word:
    """Take backslashes off a word without quotes."""
    splits = bool(re.search(r"(?<!\\)(?:\\\\)*[*?\[]", text))
    if re.search(r"(?<!\\)(?:\\\\)*\{.*[,.].*\}", text):
        return ANYTHING
    return Word(re.sub(r"\\(\n|.)", lambda found: found[1].strip("\n"), text, flags=re.DOTALL), splits)


def _double_quoted(node: Node) -> str:
    """Take backslashes off a string in double quotes, its expansions unknown."""
    raw = node.text or b""
    pieces: list[str] = []
    position = raw.index(b'"') + 1
    for child in node.named_children:
        if child.type in EXPANSIONS:
            pieces += [_unescaped(raw[position : child.start_byte - node.start_byte]), UNKNOWN]
            position = child.end_byte - node.start_byte
    pieces.append(_unescaped(raw[position:-1]))
    return "".join(pieces)


def _unescaped(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), text)


ANSI_C = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{1,4}|[abefnrtvE\\'\"?]|.)", re.DOTALL)

ESCAPES = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def _ansi_c(text: str) -> str:
    """Resolve the escapes of ``$'…'``; one that is not known leaves the word unknown."""

    def resolved(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xu" and len(code) > 1:
            return chr(int(code[1:], 16)) or UNKNOWN
        if code[0] in "01234567":
            return chr(int(code, 8))
        return ESCAPES.get(code, code if code in "\\'\"?" else UNKNOWN)

    return ANSI_C.sub(resolved, text)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
