"""A trainer's sampling parameters, by the names vLLM and SGLang share."""

from collections.abc import Mapping
from typing import Any

from environments.config import SamplingConfig
from trajectories.errors import ConfigError

NEUTRAL = {
    "min_p": (None, 0, 0.0),
    "repetition_penalty": (None, 1, 1.0),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
    "stop": (None, [], (), ""),
}
"""Parameters that environments don't offer, with the values that change nothing."""


def trainer_sampling(params: Mapping[str, Any], usual: SamplingConfig) -> SamplingConfig:
    """Return how a trainer wants tokens sampled; what it leaves out is as the environment is set.

    Raises:
        ConfigError: It wants what environments don't offer.
    """
    for name, harmless in NEUTRAL.items():
        if params.get(name) not in harmless:
            raise ConfigError(f"sampling parameter {name} is not offered to environments: leave it unset")
    longest = params.get("max_tokens") or params.get("max_new_tokens") or usual.max_tokens
    return SamplingConfig(
        max_tokens=min(longest, usual.max_tokens),
        temperature=params.get("temperature", usual.temperature),
        top_p=params.get("top_p", usual.top_p),
        top_k=max(params.get("top_k", usual.top_k) or 0, 0),
    )
