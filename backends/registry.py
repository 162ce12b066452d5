"""Backends by name, with their options checked before anything starts."""

import json
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from backends.base import ToolBackend
from backends.machine import OutputLimits
from backends.maker import Maker
from backends.pool import Pool, PoolLimits
from trajectories.errors import ConfigError

T = TypeVar("T")


def _local() -> tuple[type[Any], Callable[[Any], Maker]]:
    from backends.local import LocalLimits, LocalMaker

    return LocalLimits, LocalMaker


def _docker() -> tuple[type[Any], Callable[[Any], Maker]]:
    from backends.docker import DockerLimits, DockerMaker

    return DockerLimits, DockerMaker


def _ssh() -> tuple[type[Any], Callable[[Any], Maker]]:
    from backends.ssh import SshMaker
    from backends.ssh_host import SshLimits

    return SshLimits, SshMaker


def _modal() -> tuple[type[Any], Callable[[Any], Maker]]:
    from backends.modal import ModalMaker
    from backends.modal_account import ModalLimits

    return ModalLimits, ModalMaker


def _nomad() -> tuple[type[Any], Callable[[Any], Maker]]:
    from backends.nomad import NomadMaker
    from backends.nomad_job import NomadLimits

    return NomadLimits, NomadMaker


_KINDS = {"docker": _docker, "local": _local, "modal": _modal, "nomad": _nomad, "ssh": _ssh}
"""What a kind's own options are, and what makes its sandboxes; imported when it is asked for."""


def available_backends() -> list[str]:
    """Return the names that `create_backend` knows."""
    return sorted(_KINDS)


def create_backend(kind: str, **options: Any) -> ToolBackend:
    """Make a backend; it is started with ``async with``.

    Args:
        kind: One of `available_backends`.
        **options: Fields of `PoolLimits`, `OutputLimits` and of the kind's own limits.

    Raises:
        ConfigError: An unknown kind or option.
    """
    if kind not in _KINDS:
        raise ConfigError(f"backend: {_unknown(kind, available_backends())}")
    own_limits, make = _KINDS[kind]()
    known = [field.name for limits in (own_limits, PoolLimits, OutputLimits) for field in fields(limits)]
    for name in options:
        if name not in known:
            raise ConfigError(f"backend {kind}: {_unknown(name, sorted(known))}")
    pool_options = {**getattr(own_limits, "POOL", {}), **options}
    return Pool(
        make(_take(own_limits, options)), _take(PoolLimits, pool_options), _take(OutputLimits, options)
    )


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
    """Build a dataclass from those options that are its fields."""
    names = {field.name for field in fields(cast(Any, kind))}
    return kind(**{name: value for name, value in options.items() if name in names})


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"unknown {name!r}" + (
        f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
    )
