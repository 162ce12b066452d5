"""A running sandbox with its shells, independent of who leases it."""

import asyncio
import re
import shlex
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from backends.base import OnOutput
from backends.link import STDERR, Sandbox
from backends.output import Capture
from backends.shell import Run, Shell
from backends.warden import Warden
from trajectories.errors import SandboxDied, SandboxError

PING_TIMEOUT_S = 5.0
RESET_TIMEOUT_S = 30.0

_SHELL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

PROOF = """
shopt -s dotglob nullglob
for directory in "${directories[@]}"; do
    rm -rf -- "$directory"/*
    left=("$directory"/*)
    ((${#left[@]} == 0)) || { echo "$directory still holds ${left[0]}" >&2; exit 1; }
done
chmod 755 "${directories[0]}" || exit
for kind in shm sem msg; do
    { read -r _; read -r left; } </proc/sysvipc/$kind && { echo "$kind is left: $left" >&2; exit 1; }
done
for process in /proc/[0-9]*; do
    process=${process#/proc/}
    [[ "$known$BASHPID " == *" $process "* || ! -e /proc/$process ]] ||
        { echo "process $process is left" >&2; exit 1; }
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much of a command's output is kept."""

    max_bytes: int = 256 * 1024
    """Per channel."""
    spill_directory: Path | None = None
    """Host directory that gets the whole of an output that was truncated; None drops the middle."""


class Machine:
    """A sandbox, its warden and its shells."""

    def __init__(self, sandbox: Sandbox, warden: Warden, limits: OutputLimits):
        self.sandbox = sandbox
        self.warden = warden
        self.born = monotonic()
        self._limits = limits
        self._shells: dict[str, Shell] = {}
        self._users: dict[str, Machine] = {}
        self._entering = asyncio.Lock()
        self._entered = False

    async def open(self) -> None:
        """Open the control shell and the agent's, before anything of the agent runs.

        Raises:
            SandboxDied: The sandbox does not answer.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for name in ("control", "main"):
                    group.create_task(self.shell(name).open())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def shell(self, name: str) -> Shell:
        """Return a shell by name; it is opened when it first runs something.

        Raises:
            ValueError: A name that is not made of letters, digits, ``_`` and ``-``.
        """
        if not _SHELL_NAME.fullmatch(name):
            raise ValueError(f"shell: {name!r} is not made of letters, digits, '_' and '-'")
        if name not in self._shells:
            self._shells[name] = Shell(
                name, self.warden, lambda receive: self.sandbox.open_shell(name, receive)
            )
        return self._shells[name]

    async def of_user(self, user: str) -> "Machine":
        """Return the same sandbox with the shells of another user; it ends with theirs, and theirs with it.

        Raises:
            ValueError: The sandbox can't have that user.
            SandboxDied: The sandbox does not answer.
        """
        self._entered = True
        if user not in self._users:
            async with self._entering:
                if user not in self._users:
                    self._users[user] = await self._enter(user)
        return self._users[user]

    async def _enter(self, user: str) -> "Machine":
        if self.warden.uid == 0:
            raise ValueError("user: the agent is root, beside whom no other user has anything of their own")
        warden = Warden()
        machine = Machine(await self.sandbox.enter(user, warden), warden, self._limits)
        known = {self.warden.uid: "the agent"}
        known |= {other.warden.uid: repr(name) for name, other in self._users.items()}
        if warden.uid in known:
            await machine.sandbox.destroy()
            raise ValueError(f"user: {user!r} is {known[warden.uid]} by another name")
        if self.warden.cause is not None:
            await machine.sandbox.destroy()
            raise SandboxDied(self.warden.cause)
        self.warden.share_fate(warden)
        return machine

    async def run(
        self,
        shell: Shell,
        code: str,
        *,
        timeout_s: float,
        stdin: Iterable[bytes] | None = None,
        max_bytes: int | None = None,
        on_output: OnOutput | None = None,
    ) -> Run:
        """Run code in one of the shells; see `Shell.run`."""
        captures = (self._capture(max_bytes, "stdout"), self._capture(max_bytes, "stderr"))
        try:
            return await shell.run(
                code,
                timeout_s=timeout_s,
                others=lambda: {
                    pid for other in self._shells.values() if other is not shell for pid in other.pids
                },
                captures=captures,
                stdin=stdin,
                on_output=on_output,
            )
        finally:
            for capture in captures:
                capture.close()

    async def alive(self) -> bool:
        """Ask the sandbox whether it still works."""
        with suppress(SandboxDied):
            return (
                self.warden.cause is None
                and await self.warden.ask("ping", timeout_s=PING_TIMEOUT_S) == "pong"
            )
        return False

    async def reset(self) -> None:
        """End every process, empty every directory, and have a fresh control shell prove both.

        Raises:
            SandboxError: It could not be proven; the sandbox must not be used again.
        """
        if self._entered:
            raise SandboxError("a command of another user was asked for, whose traces only its end removes")
        for shell in self._shells.values():
            shell.end("the slot was released")
        self._shells.clear()
        await self.warden.ask("clear")
        control = self.shell("control")
        await control.open()
        directories = shlex.join((self.sandbox.workspace, *self.sandbox.temporary, "/run/lachesis"))
        known = " ".join(map(str, (1, *control.pids)))
        code = f"( directories=({directories}) known=' {known} '\n{PROOF})"
        run = await self.run(control, code, timeout_s=RESET_TIMEOUT_S)
        if run.exit_code != 0:
            raise SandboxError(run.captures[STDERR].text().strip() or f"the reset ended with {run.exit_code}")
        await self.shell("main").open()

    async def destroy(self) -> None:
        """End the sandbox and everything in it; idempotent."""
        self.warden.mourn("the sandbox was destroyed")
        for shell in self._shells.values():
            shell.close()
        try:
            for machine in self._users.values():
                await machine.destroy()
        finally:
            await self.sandbox.destroy()

    def _capture(self, max_bytes: int | None, channel: str) -> Capture:
        directory = self._limits.spill_directory
        return Capture(
            self._limits.max_bytes if max_bytes is None else max_bytes,
            None if directory is None else directory / f"{uuid.uuid4().hex}.{channel}",
        )
