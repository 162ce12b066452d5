"""One lease of a sandbox: what a task sees of it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from typing_extensions import override

from backends import transfer
from backends.base import ExecutionResult, OnOutput, Slot
from backends.machine import Machine
from backends.shell import Run
from trajectories.errors import LeaseExpired

CHUNK_BYTES = 128 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ShellSlot(Slot):
    """A `Slot` over a `Machine`. Every lease gets a new one: a stale one can't reach a later task."""

    def __init__(self, task_id: str, machine: Machine):
        self.task_id = task_id
        self.workspace = machine.sandbox.workspace
        self._machine = machine
        self._expired = False

    @property
    def machine(self) -> Machine:
        """The sandbox behind the lease.

        Raises:
            LeaseExpired: The slot was released.
        """
        self._check()
        return self._machine

    def _check(self) -> None:
        if self._expired:
            raise LeaseExpired(f"the slot of task {self.task_id!r} was used after its release")

    def expire(self) -> Machine:
        """End the lease and return the sandbox."""
        machine, self._expired = self.machine, True
        return machine

    @override
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
        machine = self.machine
        if user is not None:
            machine = await machine.of_user(user)
            self._check()
        if "\0" in command:
            return ExecutionResult("", "bash: a command cannot contain a NUL byte\n", 126)
        run = await machine.run(
            machine.shell(shell),
            compose(command, stdin, env or {}, isolated, merge_stderr),
            timeout_s=timeout_s,
            stdin=None if stdin is None else chunks(stdin),
            max_bytes=max_output_bytes,
            on_output=on_output,
        )
        return _result(run)

    @override
    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await transfer.write_file(self.machine, path, data, mode)

    @override
    async def read_file(self, path: str, *, max_bytes: int = 64 * 2**20) -> bytes:
        return await transfer.read_file(self.machine, path, max_bytes)

    @override
    async def upload(self, source: Path, destination: str) -> None:
        await transfer.upload(self.machine, source, destination)

    @override
    async def download(self, source: str, destination: Path, *, max_bytes: int = 2**30) -> None:
        await transfer.download(self.machine, source, destination, max_bytes)


def compose(
    command: str, stdin: bytes | None, env: Mapping[str, str], isolated: bool, merge_stderr: bool
) -> str:
    """Write the bash source that a shell evaluates for one command.

    Raises:
        ValueError: A variable's name or value that no environment can hold.
    """
    if stdin is None and not env and not isolated and not merge_stderr:
        return command
    for name, value in env.items():
        if not _NAME.match(name) or "\0" in value:
            raise ValueError(f"env: {name!r} is no variable that bash could set")
    code = " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), "eval"])
    code = f"{code} {shlex.quote(command)}"
    if isolated:
        code = f"( {code} )"
    if merge_stderr:
        code = f"{{ {code}; }} 2>&1"
    return code if stdin is None else transfer.with_stdin(code, len(stdin))


def chunks(data: bytes) -> Iterator[bytes]:
    """Cut data into pieces that never make the loop wait long."""
    view = memoryview(data)
    return (bytes(view[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES))


def _result(run: Run) -> ExecutionResult:
    stdout, stderr = run.captures.values()
    return ExecutionResult(
        stdout=stdout.text(),
        stderr=stderr.text(),
        exit_code=run.exit_code,
        timed_out=run.ending == "timed_out",
        truncated=stdout.truncated or stderr.truncated,
        duration_s=run.duration_s,
        stdout_bytes=stdout.total_bytes,
        stderr_bytes=stderr.total_bytes,
        stdout_spill=stdout.close(),
        stderr_spill=stderr.close(),
    )
