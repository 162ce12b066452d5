"""Parsers by name, and the family a chat template speaks."""

import difflib
from collections.abc import Sequence

from tool_call_parsers.assembly import OpenReasoning
from tool_call_parsers.bare_json import Json, Llama3Json
from tool_call_parsers.base import Parser
from tool_call_parsers.deepseek_v3 import DeepSeekV3, DeepSeekV31
from tool_call_parsers.functiongemma import FunctionGemma
from tool_call_parsers.glm45 import Glm45, Glm47
from tool_call_parsers.gpt_oss import GptOss
from tool_call_parsers.hermes import Hermes, LongCat
from tool_call_parsers.invoked import DeepSeekV4, DeepSeekV32, MiniMaxM2
from tool_call_parsers.json_list import Granite, HunyuanA13B, Mistral, Phi4Mini
from tool_call_parsers.kimi_k2 import KimiK2
from tool_call_parsers.mistral_v11 import MistralV11
from tool_call_parsers.pythonic import Llama4Pythonic, Olmo3, Pythonic
from tool_call_parsers.qwen3_coder import Qwen3Coder
from tool_call_parsers.react import React
from tool_call_parsers.token_map import Tokenizer
from tool_call_parsers.xml import Xml
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
    "llama3_json": Llama3Json,
    "llama4_pythonic": Llama4Pythonic,
    "pythonic": Pythonic,
    "olmo3": Olmo3,
    "mistral": Mistral,
    "mistral_v11": MistralV11,
    "glm45": Glm45,
    "glm47": Glm47,
    "kimi_k2": KimiK2,
    "gpt_oss": GptOss,
    "minimax_m2": MiniMaxM2,
    "granite": Granite,
    "phi4_mini": Phi4Mini,
    "hunyuan_a13b": HunyuanA13B,
    "functiongemma": FunctionGemma,
    "xml": Xml,
    "json": Json,
    "react": React,
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

_SIGNS = [
    ("longcat", "<longcat_tool_call>"),
    ("deepseek_v4", "｜DSML｜tool_calls"),
    ("deepseek_v32", "｜DSML｜"),
    ("deepseek_v3", "<｜tool▁sep｜>", "```json"),
    ("deepseek_v31", "<｜tool▁sep｜>"),
    ("kimi_k2", "<|tool_calls_section_begin|>"),
    ("minimax_m2", "<minimax:tool_call>"),
    ("functiongemma", "<start_function_call>"),
    ("gpt_oss", "to=functions."),
    ("glm45", "<arg_key>"),
    ("qwen3_coder", "<function="),
    ("phi4_mini", "functools["),
    ("olmo3", "<function_calls>"),
    ("hunyuan_a13b", "<tool_calls>"),
    ("mistral_v11", "[ARGS]"),
    ("mistral", "[TOOL_CALLS]"),
    ("llama4_pythonic", "<|python_start|>"),
    ("llama3_json", "<|python_tag|>"),
    ("granite", "<|tool_call|>"),
    ("hermes", "<tool_call>"),
    ("llama3_json", '{"name": function name, "parameters"'),
    ("pythonic", "[func_name1("),
]
"""Families, each with what only its template holds; the more telling signs first."""


def available_parsers() -> list[str]:
    """Return every name that ``get_parser`` takes."""
    return sorted({*PARSERS, *ALIASES})


def detect(chat_template: str) -> str | None:
    """Return the name of the parser for models with this chat template; None where nothing tells."""
    held = (name for name, *signs in _SIGNS if all(sign in chat_template for sign in signs))
    return next(held, None)


def get_parser(
    name: str,
    tools: Sequence[ToolSchema] | None = None,
    tokenizer: Tokenizer | None = None,
    calls_in_open_reasoning: OpenReasoning = "refuse",
) -> Parser:
    """Build the parser of a format family.

    Args:
        name: One of ``available_parsers()``.
        tools: Schemas in OpenAI's form: they type raw values, and calls of other tools are flagged.
        tokenizer: The model's, for token positions.
        calls_in_open_reasoning: Whether a call in a think block that the model never closed is an error it is
            told (``refuse``) or a call (``accept``).

    Raises:
        ConfigError: No such parser; the message lists the near names.
    """
    family = PARSERS.get(ALIASES.get(name, name))
    if family is None:
        near = difflib.get_close_matches(name, available_parsers(), n=5, cutoff=0.4) or available_parsers()
        raise ConfigError(f"there is no tool-call parser {name!r}; did you mean {', '.join(near)}?")
    return family(tools, tokenizer, calls_in_open_reasoning)
