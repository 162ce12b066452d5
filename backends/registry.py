"""Backends by name, with their options checked before anything starts."""

import json
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

from backends.base import ToolBackend
from backends.machine import OutputLimits
from backends.maker import Maker
from backends.pool import Pool, PoolLimits
from trajectories.errors import ConfigError

T = TypeVar("T")


def _local(options: dict[str, Any]) -> Maker:
    from backends.local import LocalLimits, LocalMaker

    return LocalMaker(_take(LocalLimits, options))


def _docker(options: dict[str, Any]) -> Maker:
    from backends.docker import DockerLimits, DockerMaker

    return DockerMaker(_take(DockerLimits, options))


_MAKERS = {"local": _local, "docker": _docker}


def available_backends() -> list[str]:
    """Return the names that `create_backend` knows."""
    return sorted(_MAKERS)


def create_backend(kind: str, **options: Any) -> ToolBackend:
    """Make a backend; it is started with ``async with``.

    Args:
        kind: One of `available_backends`.
        **options: Fields of `PoolLimits`, `OutputLimits` and of the kind's own limits.

    Raises:
        ConfigError: An unknown kind or option.
    """
    if kind not in _MAKERS:
        raise ConfigError(f"backend: {_unknown(kind, available_backends())}")
    rest = dict(options)
    pool, output = _take(PoolLimits, rest), _take(OutputLimits, rest)
    known = {field.name for kind_limits in (PoolLimits, OutputLimits) for field in fields(kind_limits)}
    maker = _MAKERS[kind](rest)
    if rest:
        raise ConfigError(f"backend {kind}: {_unknown(next(iter(rest)), sorted(known))}")
    return Pool(maker, pool, output)


def parse_options(settings: list[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` arguments of a command line; a value is JSON where it can be, else text.

    Raises:
        ConfigError: An argument without ``=``.
    """
    options = dict[str, Any]()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r}: write NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _take(kind: type[T], options: dict[str, Any]) -> T:
    """Build a dataclass from those options that are its fields, and remove them."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: options.pop(name) for name in names if name in options})


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"unknown {name!r}" + (
        f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
    )
