"""What a pool spent its time on, and what went wrong in it."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Phase:
    """How often something was done, and how long it took."""

    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count one more."""
        self.count += 1
        self.total_s += duration_s
        self.max_s = max(self.max_s, duration_s)


@dataclass(slots=True)
class PoolMetrics:
    """One pool's phases and failures since it was made."""

    waiting: Phase = field(default_factory=Phase)
    """For one of the pool's places."""
    acquiring: Phase = field(default_factory=Phase)
    """From being asked for a slot to handing it out."""
    creating: Phase = field(default_factory=Phase)
    resetting: Phase = field(default_factory=Phase)
    destroying: Phase = field(default_factory=Phase)
    found_dead: int = 0
    """Warm sandboxes that no longer worked when they were wanted."""
    not_clean: int = 0
    """Sandboxes that could not be proven clean, and were destroyed instead of reused."""
    not_destroyed: int = 0
    """Sandboxes whose end could not be confirmed in time; the reaper's business."""
