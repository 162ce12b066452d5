"""Parsers by name."""

import difflib
from collections.abc import Sequence

from tool_call_parsers.base import Parser
from tool_call_parsers.deepseek_v3 import DeepSeekV3, DeepSeekV31
from tool_call_parsers.hermes import Hermes, LongCat
from tool_call_parsers.invoked import DeepSeekV4, DeepSeekV32, MiniMaxM2
from tool_call_parsers.qwen3_coder import Qwen3Coder
from tool_call_parsers.token_map import Tokenizer
from trajectories.errors import ConfigError
from trajectories.messages import ToolSchema

PARSERS: dict[str, type[Parser]] = {
    "hermes": Hermes,
    "longcat": LongCat,
    "qwen3_coder": Qwen3Coder,
    "deepseek_v3": DeepSeekV3,
    "deepseek_v31": DeepSeekV31,
    "deepseek_v32": DeepSeekV32,
    "deepseek_v4": DeepSeekV4,
    "minimax_m2": MiniMaxM2,
}

ALIASES = {
    "qwen": "hermes",
    "qwen2.5": "hermes",
    "qwen3": "hermes",
    "qwen3.5": "qwen3_coder",
    "deepseek": "deepseek_v3",
    "deepseek_r1": "deepseek_v3",
    "deepseek_v3_1": "deepseek_v31",
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
