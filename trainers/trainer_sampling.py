"""A trainer's sampling parameters, by the names vLLM and SGLang share."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from environments.config import SamplingConfig
from trajectories.errors import ConfigError

NEUTRAL = {
    "min_p": (None, 0, 0.0),
    "repetition_penalty": (None, 1, 1.0),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
    "stop": (None, [], (), ""),
    "stop_token_ids": (None, [], ()),
    "ignore_eos": (None, False),
    "logit_bias": (None, {}),
    "min_tokens": (None, 0, 1),
    "min_new_tokens": (None, 0, 1),
}
"""Parameters that environments don't offer, with the values that change nothing.

``min_tokens`` 1, which SkyRL always sends, would keep the model from saying nothing at all: it may.
"""


def trainer_sampling(params: Mapping[str, Any], usual: SamplingConfig) -> SamplingConfig:
    """Return how a trainer wants tokens sampled; what is left out or None is as the environment is set.

    A turn never gets more tokens than the environment gives it.

    Raises:
        ConfigError: It wants what environments don't offer, or a value that can't be.
    """
    for name, harmless in NEUTRAL.items():
        if params.get(name) not in harmless:
            raise ConfigError(f"sampling parameter {name} is not offered to environments: leave it unset")
    given = {name: value for name, value in params.items() if value is not None}
    longest = given.get("max_tokens") or given.get("max_new_tokens") or usual.max_tokens
    try:
        return SamplingConfig(
            max_tokens=min(longest, usual.max_tokens),
            temperature=given.get("temperature", usual.temperature),
            top_p=given.get("top_p", usual.top_p),
            top_k=max(given.get("top_k", usual.top_k), 0),
        )
    except ValidationError as error:
        raise ConfigError(f"the trainer's sampling: {error}") from error
