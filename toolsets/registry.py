"""Named sets of tools, and how they compose.

A set whose requirements are missing (a key, a package, a binary) is left out with one logged line: an agent
with fewer tools is better than a run that does not start.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from toolsets.files import edit_file, list_files, read_file, search_files, write_file
from toolsets.python import python
from toolsets.terminal import terminal
from toolsets.tool import Tool
from trajectories.errors import ConfigError

logger = logging.getLogger(__name__)


def _nothing_missing() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Toolset:
    """A set of tools under one name."""

    tools: list[Tool] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)
    """Names of sets that this one contains."""
    check_requirements: Callable[[], str | None] = _nothing_missing
    """Returns what is missing, in a few words, or None."""


TOOLSETS: dict[str, Toolset] = {
    "terminal": Toolset([terminal]),
    "files": Toolset([read_file, write_file, edit_file, list_files, search_files]),
    "python": Toolset([python]),
    "coding": Toolset(includes=["terminal", "files", "python"]),
}


def resolve_tools(names: Iterable[str], toolsets: Mapping[str, Toolset] = TOOLSETS) -> list[Tool]:
    """Return the tools of the named sets, includes resolved, each once, in order of first mention.

    Raises:
        ConfigError: An unknown name, an include cycle, or two tools of one name.
    """
    found: dict[str, Tool] = {}
    for name in names:
        for tool in _expand(name, toolsets, path=()):
            if found.setdefault(tool.name, tool) is not tool:
                raise ConfigError(f"toolsets: two different tools are named {tool.name!r}; leave one out")
    return list(found.values())


def _expand(name: str, toolsets: Mapping[str, Toolset], path: tuple[str, ...]) -> list[Tool]:
    if name in path:
        raise ConfigError(f"toolsets: {' includes '.join([*path, name])}: break the cycle")
    if name not in toolsets:
        near = get_close_matches(name, toolsets, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(toolsets))}"
        raise ConfigError(f"toolsets: unknown toolset {name!r}; {hint}")
    toolset = toolsets[name]
    if missing := toolset.check_requirements():
        logger.warning("toolset %s is left out: %s", name, missing)
        return []
    included = [tool for inner in toolset.includes for tool in _expand(inner, toolsets, (*path, name))]
    return included + toolset.tools
