"""The contract of every sandbox backend.

A sandbox runs what a model wrote, so it has three outcomes that must never be mixed up: a command that ran
(whatever its exit code, and also when it timed out) is an `ExecutionResult`; a sandbox that failed is a
`SandboxError` and never looks like output; a mistake of the caller raises at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from backends.resources import USUAL, Resources

OutputChannel = Literal["stdout", "stderr"]

OnOutput = Callable[[OutputChannel, bytes], None]
"""Called with every chunk as it arrives; an exception it raises ends the command and reaches the caller."""


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What one command did. Output is decoded as UTF-8; undecodable bytes become U+FFFD."""

    stdout: str
    """Head and tail with a line saying how many bytes were left out between them, if it was too long."""
    stderr: str
    exit_code: int | None
    """None where the command was killed at its time limit."""
    timed_out: bool = False
    truncated: bool = False
    """Whether ``stdout`` or ``stderr`` lacks bytes that the command wrote."""
    duration_s: float = 0.0
    """From the moment the shell was free to the end; waiting for the shell does not count."""
    stdout_bytes: int = 0
    """Bytes the command wrote, kept or not."""
    stderr_bytes: int = 0
    stdout_spill: Path | None = None
    """Host file with the whole output, where the backend has a spill directory and it was truncated."""
    stderr_spill: Path | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of `ToolBackend.execute_batch`."""

    slot: "Slot"
    command: str
    timeout_s: float = 60


class Slot(ABC):
    """One sandbox leased to one task: a file system and persistent shells.

    Relative paths resolve against ``workspace``. The slot is dead once released: any use raises
    `LeaseExpired`.
    """

    task_id: str
    workspace: str
    """Absolute path of the workspace inside the sandbox; shells start there."""

    @abstractmethod
    async def exec(
        self,
        command: str,
        *,
        timeout_s: float = 60,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        shell: str = "main",
        isolated: bool = False,
        merge_stderr: bool = False,
        max_output_bytes: int | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecutionResult:
        """Run a bash command in one of the slot's persistent shells.

        A shell keeps its working directory and exported variables, runs one command at a time, and is
        created when first named. ``shell="main"`` is the agent's. ``shell="control"`` is the harness's own:
        opened before the agent's first command, so nothing the agent defines there is ever evaluated by it;
        set-up and rewards belong in it. At the time limit, or when the call is cancelled, every process the
        command started dies, detached ones included; background jobs of earlier commands live on, and the
        shell continues with the working directory and exports it had before the command.

        Args:
            command: Bash source text; may span lines.
            timeout_s: Limit on running, in seconds; waiting for the shell does not count.
            stdin: Bytes on standard input; None is an empty input.
            env: Variables for this command alone.
            user: Another user than the agent's, by name or number, with shells of their own, for what the
                harness hides from the agent. What they start lives and dies apart from what the agent starts,
                and neither has more rights than file permissions give; a number that the sandbox does not
                list has group 0, unless one follows a colon. Their shells begin in the workspace, and do so
                again after a time limit; beware of programs that take code from there. A user's first command
                lets them in, and each of their shells is opened by its first; ``timeout_s`` bounds neither,
                and an agent that uses up all processes can prevent both: have one run before the agent's
                first. A sandbox that another user was in is never reused. Docker's sandboxes have users; all
                others have one alone.
            shell: Name of the shell.
            isolated: Run in a subshell, so that the shell keeps nothing of the command.
            merge_stderr: Write both channels to ``stdout``, in order.
            max_output_bytes: Most bytes to keep per channel; None is the backend's default.
            on_output: Called with chunks as they arrive.

        Raises:
            ValueError: The sandbox can't have such a user, or a variable can't have such a name or value.
            SandboxDied: The sandbox is gone; what the command did is unknown and it was not run again.
            LeaseExpired: The slot was released.
        """

    @abstractmethod
    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file, byte for byte and atomically; missing parents are created.

        Raises:
            OSError: The sandbox refused, with the ``errno`` it gave (``ENOSPC``, ``EISDIR``, ``EACCES``, …).
            SandboxDied: The sandbox is gone.
        """

    @abstractmethod
    async def read_file(self, path: str, *, max_bytes: int = 64 * 2**20) -> bytes:
        """Return a regular file's bytes.

        Raises:
            OSError: As `FileNotFoundError`, `IsADirectoryError`, `PermissionError`; ``EFBIG`` beyond
                ``max_bytes``.
            SandboxDied: The sandbox is gone.
        """

    @abstractmethod
    async def upload(self, source: Path, destination: str) -> None:
        """Copy the contents of a host directory into a directory of the sandbox, as one stream.

        Raises:
            OSError: A source that cannot be read, or a destination that cannot be written.
            SandboxDied: The sandbox is gone.
        """

    @abstractmethod
    async def download(self, source: str, destination: Path, *, max_bytes: int = 2**30) -> None:
        """Copy the contents of a directory of the sandbox into a host directory, as one stream.

        Nothing the sandbox sends can leave ``destination``: only directories, regular files and symlinks that
        stay inside are taken.

        Raises:
            UnsafeArchive: An entry would leave ``destination``, or is a device or FIFO.
            OSError: As for `read_file`.
            SandboxDied: The sandbox is gone.
        """


class UnsafeArchive(OSError):
    """A directory that came out of a sandbox holds something that must not be written to the host."""


class Acquisition(AbstractAsyncContextManager[Slot]):
    """A slot on its way: ``await`` it and release it yourself, or enter it and have it released."""

    def __init__(
        self, take: Callable[[], Awaitable[Slot]], give_back: Callable[[Slot], Awaitable[None]]
    ) -> None:
        self._take = take
        self._give_back = give_back
        self._slot: Slot | None = None

    def __await__(self) -> Generator[object, None, Slot]:
        return self._take().__await__()

    async def __aenter__(self) -> Slot:
        self._slot = await self._take()
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            await self._give_back(slot)


class ToolBackend(ABC):
    """A source of slots; safe to share between concurrent rollouts."""

    @abstractmethod
    async def start(self) -> None:
        """Check that sandboxes can be made here, and make the first ones.

        Raises:
            SandboxUnavailable: They can't; the message says why and what to do.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End every sandbox, leased or not; idempotent, and complete when cancelled."""

    @abstractmethod
    def acquire(
        self,
        task_id: str,
        *,
        image: str | None = None,
        resources: Resources = USUAL,
        timeout_s: float | None = None,
    ) -> Acquisition:
        """Lease a slot: ``async with backend.acquire(task_id) as slot``, or await it and `release` it.

        Args:
            task_id: Whom the slot is for.
            image: What the sandbox starts from, where the backend has images; None is its default.
            resources: What it may use.
            timeout_s: Longest wait for a free slot; None is the backend's default.

        Raises:
            SandboxUnavailable: No sandbox could be started.
            CapacityExceeded: None became free within ``timeout_s``.
            ConfigError: There is no such image, or the backend does not bound such resources.
        """

    @abstractmethod
    async def release(self, slot: Slot, reset_workspace: bool = True) -> None:
        """End a lease; every process in the slot dies. Idempotent, and complete when cancelled.

        Args:
            slot: What `acquire` gave.
            reset_workspace: Destroy the sandbox (or, in a pool that reuses, prove it clean). False keeps it
                as it stands for the task's next `acquire` of the same image and resources.
        """

    @abstractmethod
    async def execute_batch(self, commands: Iterable[Command]) -> list[ExecutionResult | BaseException]:
        """Run commands concurrently, those of one slot in order; a failure stands in its command's place."""

    async def __aenter__(self) -> "ToolBackend":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
