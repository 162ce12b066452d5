"""The seam between the sandbox protocol and what carries it.

A backend only has to start a sandbox whose first process becomes ``warden.sh`` and to open processes that
become ``keeper.sh``, each as a `Link`. Everything else (commands, files, timeouts, sweeps) is shared.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from backends.warden import Warden

STDOUT, STDERR = 1, 2

Receive = Callable[[int, bytes], None]
"""Called with a channel (`STDOUT` or `STDERR`) and bytes; with no bytes when the link has ended."""


class Link(ABC):
    """The three standard streams of a process inside a sandbox."""

    in_order: bool
    """Whether `poll` gives all that was written before an answer on the side channel. Where something relays
    the streams it can't be known, and shells mark the end of a command in the output itself."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send to standard input without waiting; what the pipe does not take is buffered."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until what was written is nearly all sent, or the link has ended."""

    def poll(self) -> None:  # noqa: B027 - most have received already what can be received
        """Receive what can be received at once."""

    @abstractmethod
    def close(self) -> None:
        """Stop receiving and free the descriptors; idempotent."""


class PushedLink(Link):
    """A link on a transport of asyncio's or a channel of asyncssh's, which say when to stop writing."""

    in_order = False

    def __init__(self) -> None:
        self._writable = asyncio.Event()
        self._writable.set()

    @override
    async def drain(self) -> None:
        await self._writable.wait()

    def pause_writing(self) -> None:
        """Make `drain` wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let `drain` go on."""
        self._writable.set()


class Sandbox(ABC):
    """One running sandbox, as a backend makes it."""

    workspace: str
    temporary: tuple[str, ...]
    """Every directory besides the workspace that the sandbox can write."""
    furnished: bool = False
    """Whether the workspace already holds what a pool's ``workspace_from`` holds."""

    @abstractmethod
    async def open_shell(self, name: str, receive: Receive) -> Link:
        """Start a process that evaluates `BOOTSTRAP`, and return its streams.

        Its first argument is ``name``, and its descriptor 3 is the side channel: what process 1 answers on.

        Raises:
            SandboxDied: The sandbox is gone.
        """

    async def enter(self, user: str, warden: "Warden") -> "Sandbox":
        """Return the sandbox as another of its users sees it: shells opened there are that user's.

        Args:
            user: By name or number.
            warden: That user's, to be started.

        Raises:
            ValueError: The sandbox has one user alone, or none of that name.
            SandboxDied: The sandbox is gone.
        """
        raise ValueError(f"user: {user!r} can't be had; sandboxes of this kind have one user alone")

    @abstractmethod
    async def destroy(self) -> None:
        """Kill everything and free everything, in bounded time; idempotent."""


BOOTSTRAP = 'read -r -N 5 size; read -r -N "$size" program; eval "$program"'
"""What wardens and keepers are started with; their program is the first record on their stdin.

As an argument the program would fill every process list that the agent looks at.
"""


@cache
def source(name: str) -> str:
    """Return one of the shell programs beside this module, without its comments."""
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def record(text: str) -> bytes:
    """Return a shell program as `BOOTSTRAP` reads it: its size in five digits, then itself."""
    data = text.encode("ascii")  # bash counts characters, and knows them by its locale
    return b"%05d" % len(data) + data


@cache
def program(name: str) -> bytes:
    """Return one of the shell programs beside this module as a record."""
    return record(source(name))
