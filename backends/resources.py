"""What one task's sandbox may use, where that is not what its backend gives to all.

Sandboxes of equal resources can stand in for each other, so these are part of what a pool keeps them by.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar, cast

from trajectories.errors import ConfigError

T = TypeVar("T")

LIMITS = {"cpus": ("cpus",), "memory_mb": ("memory_mb", "total_memory_mb"), "disk_mb": ("disk_mb",)}
"""By a resource, the options of backends that bound it."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Bounds of one sandbox; None is the backend's own."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None

    def __post_init__(self) -> None:
        for name, value in self._asked().items():
            if value <= 0:
                raise ConfigError(f"resources.{name}: must be positive, not {value!r}")

    def applied_to(self, limits: T) -> T:
        """Return a backend's limits with these in their place.

        Raises:
            ConfigError: The backend does not bound what is asked for.
        """
        known = {field.name for field in fields(cast(Any, limits))}
        changes = dict[str, float]()
        for resource, value in self._asked().items():
            bounding = known.intersection(LIMITS[resource])
            if not bounding:
                raise ConfigError(f"resources.{resource}: this backend does not bound it")
            changes.update(dict.fromkeys(bounding, value))
        return replace(cast(Any, limits), **changes)

    def _asked(self) -> dict[str, float]:
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}


USUAL = Resources()
"""What the backend gives to all."""
