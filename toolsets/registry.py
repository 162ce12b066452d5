"""Named sets of tools, and how they compose."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from toolsets.files import edit_file, edit_many, read_file, write_file
from toolsets.find import list_files, search_files
from toolsets.git import git_commit, git_diff, git_log, git_status
from toolsets.jobs import read_job, start_job, stop_job, write_job
from toolsets.python import python
from toolsets.terminal import terminal
from toolsets.testing import run_tests
from toolsets.todo import todo
from toolsets.tool import Tool
from trajectories.errors import ConfigError


def _nothing_missing() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Toolset:
    """A set of tools under one name."""

    tools: list[Tool] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)
    """Names of sets that this one contains."""
    check_requirements: Callable[[], str | None] = _nothing_missing
    """Returns what the host is missing (a key, a package), in a few words, or None."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """What the sandbox must have: its name, and a command that succeeds where it is there."""


PYTHON = {"python3": "command -v python3"}

TOOLSETS: dict[str, Toolset] = {
    "terminal": Toolset([terminal]),
    "jobs": Toolset([start_job, read_job, write_job, stop_job]),
    "files": Toolset([read_file, write_file, edit_file, edit_many, list_files, search_files]),
    "git": Toolset([git_status, git_diff, git_log, git_commit], needs={"git": "command -v git"}),
    "tests": Toolset([run_tests], needs={**PYTHON, "pytest": "python3 -m pytest --version"}),
    "python": Toolset([python], needs=PYTHON),
    "todo": Toolset([todo]),
    "coding": Toolset(includes=["terminal", "jobs", "files", "git", "tests", "python", "todo"]),
}


def expand(names: Iterable[str], toolsets: Mapping[str, Toolset] = TOOLSETS) -> list[str]:
    """Return the named sets and all they include, each once, what is included before what includes it.

    Raises:
        ConfigError: An unknown name, or an include cycle.
    """
    found: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ConfigError(f"toolsets: {' includes '.join([*path, name])}: break the cycle")
        check_known(name, toolsets, "toolset")
        for inner in toolsets[name].includes:
            visit(inner, (*path, name))
        found.setdefault(name)

    for name in names:
        visit(name, ())
    return list(found)


def resolve_tools(
    names: Iterable[str],
    toolsets: Mapping[str, Toolset] = TOOLSETS,
    *,
    disabled: Iterable[str] = (),
    unavailable: Collection[str] = (),
) -> list[Tool]:
    """Return the tools of the named sets, includes resolved, each once.

    Args:
        names: Toolsets wanted.
        toolsets: All there are.
        disabled: Toolsets and single tools to leave out.
        unavailable: Toolsets whose requirements are missing.

    Raises:
        ConfigError: An unknown name, an include cycle, or two tools of one name.
    """
    without = _names_of_tools(disabled, toolsets)
    found: dict[str, Tool] = {}
    for name in expand(names, toolsets):
        for tool in [] if name in unavailable else toolsets[name].tools:
            if tool.name not in without and found.setdefault(tool.name, tool) is not tool:
                raise ConfigError(f"toolsets: two different tools are named {tool.name!r}; leave one out")
    return list(found.values())


def check_known(name: str, known: Iterable[str], what: str) -> None:
    """Refuse a name that is not known, with the nearest one that is.

    Raises:
        ConfigError: It is not known.
    """
    known = sorted(known)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        raise ConfigError(f"toolsets: unknown {what} {name!r}; {hint}")


def _names_of_tools(names: Iterable[str], toolsets: Mapping[str, Toolset]) -> set[str]:
    """Return the tools that names stand for; a toolset's name stands for all of its tools."""
    tools = {tool.name for toolset in toolsets.values() for tool in toolset.tools}
    found: set[str] = set()
    for name in names:
        check_known(name, {*tools, *toolsets}, "toolset or tool")
        sets = expand([name], toolsets) if name in toolsets else []
        found |= {tool.name for each in sets for tool in toolsets[each].tools} | ({name} & tools)
    return found
