"""Paths against the rules: confined to the workspace, protected, hidden.

What a path leads to is asked of the sandbox, symlinks and ``..`` included. Between the question and the call
the agent's own processes may turn a link: this keeps an agent on its path, the sandbox keeps it inside.
"""

import re
import shlex
from collections.abc import Iterable

from backends.base import Slot
from toolsets.command_paths import NamedPath
from toolsets.command_rules import glob_literal, glob_regex
from toolsets.policy import PathPolicy
from toolsets.refusal import Refusal

RESOLVE_TIMEOUT_S = 10.0

MAX_EXPANDED = 1000
"""Files that a glob of a command is followed to."""

RESOLVE = """
cd -- {base} || exit
IFS= found=0
resolve() {{ realpath -mz -- "$1" 2>/dev/null || printf '%s\\0' "$1"; }}
for word in {word}; do
    ((found++ < {limit})) || break
    resolve "$word"
done
printf '\\0'
"""


class PathGuard:
    """The rules of one policy."""

    def __init__(self, policy: PathPolicy, refuse_unclear: bool):
        self._policy = policy
        self._refuse_unclear = refuse_unclear
        self.active = bool(policy.confine or policy.protect or policy.hide)
        """Whether there is anything to check."""

    async def check(self, paths: Iterable[NamedPath], slot: Slot, start: str) -> Refusal | None:
        """Return why a call with these paths is refused; None where it may run.

        Args:
            paths: What the call names.
            slot: Where it would run.
            start: Folder that relative paths begin at.
        """
        relevant = [path for path in paths if path.use != "mention" or self._policy.hide]
        for path in relevant:
            if (
                (not path.known or (path.base is None and not path.text.startswith("/")))
                and path.use != "mention"
                and self._refuse_unclear
            ):
                shown = path.text.replace("\0", "…")
                reason = f"it is unclear which file `{shown}` is; write its path out"
                return Refusal("paths.unclear", reason)
        known = [
            path for path in relevant if path.known and (path.base is not None or path.text.startswith("/"))
        ]
        if not known:
            return None
        open_folders = [slot.workspace, *self._policy.allow]
        asked = [NamedPath(folder, "read") for folder in open_folders] + known
        resolved = await _resolved(slot, start, asked)
        roots = [folder for folders in resolved[: len(open_folders)] for folder in folders]
        for path, targets in zip(known, resolved[len(open_folders) :], strict=True):
            for target in targets:
                if refusal := self._refusal(path, target, roots):
                    return refusal
        return None

    def _refusal(self, path: NamedPath, target: str, roots: list[str]) -> Refusal | None:
        workspace = roots[0]
        for pattern in self._policy.hide:
            if _covers(pattern, target, workspace):
                return Refusal(f"paths.hide: {pattern}", f"`{path.text}` is not for you to use")
        if path.use == "mention":
            return None
        if self._policy.confine and not any(_below(target, root) for root in roots):
            reason = f"`{path.text}` is outside of what you may use: {', '.join(roots)}"
            return Refusal("paths.confine", reason)
        if path.use == "read":
            return None
        for pattern in (*self._policy.protect, *self._policy.hide):
            above = path.use == "remove" and _holds(target, pattern, workspace)
            if above or _covers(pattern, target, workspace):
                reason = f"`{path.text}` is protected by `{pattern}`: it may be read, not changed"
                return Refusal(f"paths.protect: {pattern}", reason)
        return None


async def _resolved(slot: Slot, start: str, paths: list[NamedPath]) -> list[list[str]]:
    """Ask the sandbox what each path leads to; a glob leads to several."""
    scripts = [
        RESOLVE.format(base=shlex.quote(start), word=_shell_word(path), limit=MAX_EXPANDED) for path in paths
    ]
    script = "\n".join(f"({each})" for each in scripts)
    result = await slot.exec(script, timeout_s=RESOLVE_TIMEOUT_S, shell="control", isolated=True)
    answers = result.stdout.split("\0\0")
    if len(answers) != len(paths) + 1:
        return [[path.text] for path in paths]
    return [[part for part in answer.split("\0") if part] for answer in answers[:-1]]


def _shell_word(path: NamedPath) -> str:
    """Spell a path for the shell, so that it expands what the agent's shell would and nothing else."""
    text = (
        path.text
        if path.base in (None, "") or path.text.startswith(("/", "~"))
        else f"{path.base}/{path.text}"
    )
    home, rest = "", text
    if path.in_shell and re.match(r"~(/|$)", text):
        home, rest = '"$HOME"', text[1:]
    if not path.globs:
        return home + shlex.quote(rest) if rest or not home else home
    pieces = re.split(r"([*?\[\]])", rest)
    return home + "".join(piece if piece in "*?[]" else shlex.quote(piece) for piece in pieces if piece)


def _covers(pattern: str, target: str, workspace: str) -> bool:
    """Tell whether a pattern names a file or a folder it is in."""
    absolute = _absolute(pattern, workspace)
    return glob_regex(absolute.removesuffix("/**")).fullmatch(target) is not None or any(
        glob_regex(absolute.removesuffix("/**")).fullmatch(parent) for parent in _parents(target)
    )


def _holds(folder: str, pattern: str, workspace: str) -> bool:
    """Tell whether a folder may hold files that a pattern names."""
    literal = glob_literal(_absolute(pattern, workspace)).rstrip("/")
    return _below(literal, folder) or (_below(folder, literal) and "**" in pattern)


def _absolute(pattern: str, workspace: str) -> str:
    if pattern.startswith("/"):
        return pattern
    return f"{workspace}/{pattern}" if "/" in pattern else f"{workspace}/**/{pattern}"


def _parents(path: str) -> Iterable[str]:
    while (path := path.rpartition("/")[0]) != "":
        yield path


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
