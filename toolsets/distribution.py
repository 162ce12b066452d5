"""Toolsets drawn by chance, so that a model learns to work with the tools it is given.

A draw depends on its seed alone: two groups never share one, and a run that is started again draws the same.
"""

import random
from collections.abc import Mapping


def draw_toolsets(chances: Mapping[str, float], seed: str) -> list[str]:
    """Draw each toolset by its own chance; where none came out, the likeliest is taken.

    Args:
        chances: Toolset to probability, in [0, 1].
        seed: Names the group.
    """
    generator = random.Random(seed)
    drawn = [name for name, chance in sorted(chances.items()) if generator.random() < chance]
    return drawn or [max(sorted(chances), key=lambda name: chances[name])]
