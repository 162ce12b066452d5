"""What an agent may do, as data: the settings of a policy, all checked before a run starts.

A policy is guidance and accounting: it tells the model what is not done here, and counts. It reads command
lines, and there is always a program that hides what it runs. The wall is the sandbox.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolsets.command_rules import CommandRule


def _is_rule(text: str) -> str:
    CommandRule.read(text)
    return text


RuleText = Annotated[str, AfterValidator(_is_rule)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class CommandPolicy(_Section):
    """Shell commands, each rule written as a command (see `command_rules`)."""

    allow: list[RuleText] | None = None
    """If set, every command must fit one of these rules; wrappers, and the commands in them, too."""
    block: list[RuleText] = Field(default_factory=list)
    """Commands that are refused; wins over ``allow``."""
    unclear: Literal["refuse", "allow"] = "refuse"
    """What becomes of a command line that might break a rule but can't be understood: it does not parse, the
    program is a variable, a shell reads what is not known."""


class PathPolicy(_Section):
    """Files. Globs with ``**``; relative ones are below the workspace, those without a slash at any depth."""

    confine: bool = False
    """Refuse paths outside the workspace and ``allow``, symlinks and ``..`` resolved."""
    allow: list[str] = Field(default_factory=lambda: ["/tmp"])
    """Folders beside the workspace that stay open."""
    protect: list[str] = Field(default_factory=list)
    """May be read but not written, moved or removed."""
    hide: list[str] = Field(default_factory=list)
    """May not even be read."""


class ToolLimits(_Section):
    """Bounds of one tool in one rollout; beyond them its calls are refused."""

    calls: int | None = Field(default=None, ge=0)
    """Most calls; 0 forbids the tool."""
    seconds: float | None = Field(default=None, gt=0)
    """Most time, all calls together."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Longest call."""


class Prices(_Section):
    """What tokens cost, in US dollars a million."""

    prompt: float = Field(default=0.0, ge=0)
    sampled: float = Field(default=0.0, ge=0)


class Budget(_Section):
    """Bounds of a whole rollout; once one is spent, the next call ends it with stop reason ``budget``."""

    calls: int | None = Field(default=None, ge=0)
    """Most tool calls."""
    seconds: float | None = Field(default=None, gt=0)
    """Most time in tools."""
    tokens: int | None = Field(default=None, ge=1)
    """Most tokens, those of each prompt and those sampled, over all turns."""
    cost_usd: float | None = Field(default=None, gt=0)
    """Most money, for tokens (by ``prices``) and tools."""
    prices: Prices = Prices()
    """Prices of tokens."""


class Policy(_Section):
    """What an agent may do; nothing is forbidden by default."""

    commands: CommandPolicy = CommandPolicy()
    """Shell commands."""
    paths: PathPolicy = PathPolicy()
    """Files."""
    tools: dict[str, ToolLimits] = Field(default_factory=dict)
    """Limits by tool name."""
    budget: Budget = Budget()
    """Limits of the rollout."""
    max_tool_turns: int | None = Field(default=None, ge=0)
    """Most turns with tool calls; later calls are refused and the model is told to answer."""


def read_policy(path: str) -> dict[str, Any]:
    """Read the settings in a policy file.

    Raises:
        ValueError: The file can't be read or holds no mapping.
    """
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no mapping of settings")
    return content
