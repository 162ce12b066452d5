"""Parsers by name."""

import difflib
from collections.abc import Sequence

from tool_call_parsers.base import Parser
from tool_call_parsers.hermes import Hermes, LongCat
from tool_call_parsers.token_map import Tokenizer
from trajectories.errors import ConfigError
from trajectories.messages import ToolSchema

PARSERS: dict[str, type[Parser]] = {
    "hermes": Hermes,
    "longcat": LongCat,
}

ALIASES = {
    "qwen": "hermes",
    "qwen2.5": "hermes",
    "qwen3": "hermes",
}


def available_parsers() -> list[str]:
    """Return every name that ``get_parser`` takes."""
    return sorted({*PARSERS, *ALIASES})


def get_parser(
    name: str, tools: Sequence[ToolSchema] | None = None, tokenizer: Tokenizer | None = None
) -> Parser:
    """Build the parser of a format family.

    Args:
        name: One of ``available_parsers()``.
        tools: Schemas in OpenAI's form.
        tokenizer: The model's, for token positions.

    Raises:
        ConfigError: No such parser; the message lists the near names.
    """
    family = PARSERS.get(ALIASES.get(name, name))
    if family is None:
        near = difflib.get_close_matches(name, available_parsers(), n=5, cutoff=0.4) or available_parsers()
        raise ConfigError(f"there is no tool-call parser {name!r}; did you mean {', '.join(near)}?")
    return family(tools, tokenizer)
