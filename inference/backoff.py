"""How long to wait before trying again what the world failed at."""

import random


def backoff_s(attempt: int, longest_s: float) -> float:
    """Return seconds to wait after failed attempt ``attempt``, counted from 1.

    Exponential with full jitter, so that the failures of many callers spread out (Brooker 2015, "Exponential
    Backoff And Jitter").
    """
    return random.uniform(0, min(longest_s, 0.5 * 2**attempt))
