"""How a conformance check is written: an async function named by what must hold."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from types import ModuleType

from backends.base import Slot, ToolBackend

Factory = Callable[..., ToolBackend]
"""Makes an unstarted backend; keywords are `PoolLimits` and `OutputLimits` fields."""


@dataclass(frozen=True, slots=True)
class Check:
    """A behaviour with the code that proves it."""

    name: str
    run: Callable[[Factory], Awaitable[None]]


def on_backend(function: Callable[[Factory], Awaitable[None]]) -> Check:
    """Make a check of a function that makes its own backend."""
    return Check(function.__name__, function)


def on_slot(function: Callable[[Slot], Awaitable[None]]) -> Check:
    """Make a check of a function that needs one fresh slot."""

    @wraps(function)
    async def run(factory: Factory) -> None:
        async with factory(warm=0) as backend, backend.acquire(function.__name__) as slot:
            await function(slot)

    return Check(function.__name__, run)


def collected(module: ModuleType) -> list[Check]:
    """Return a module's checks in the order they are written."""
    return [value for value in vars(module).values() if isinstance(value, Check)]


def expect(actual: object, expected: object) -> None:
    """Fail unless the two are equal.

    Raises:
        AssertionError: They are not.
    """
    if actual != expected:
        raise AssertionError(f"expected {expected!r}, got {actual!r}")


def require(condition: object, otherwise: str) -> None:
    """Fail unless the condition holds.

    Raises:
        AssertionError: It doesn't.
    """
    if not condition:
        raise AssertionError(otherwise)


async def output_of(slot: Slot, command: str, shell: str = "main") -> str:
    """Run a command that must succeed, and return what it printed, stripped.

    Raises:
        AssertionError: It failed.
    """
    result = await slot.exec(command, shell=shell)
    require(result.exit_code == 0, f"{command!r} gave {result}")
    return result.stdout.strip()


async def survivors(slot: Slot, marker: str) -> list[str]:
    """Return the processes of the sandbox whose arguments contain a word that no other process has."""
    pattern = f"*'{marker[:-1]}'[{marker[-1]}]*"  # does not match itself
    listing = f"""for process in /proc/[0-9]*; do
        arguments=$(tr '\\0' ' ' <"$process/cmdline")
        case $arguments in {pattern}) echo "$arguments" ;; esac
    done 2>/dev/null; true"""
    return (await output_of(slot, listing, shell="control")).splitlines()
