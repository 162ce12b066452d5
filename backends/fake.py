"""Slots without sandboxes, for tests of what uses them: files are a dictionary, a script answers commands.

Nothing runs. What the contract says of leases and of file errors holds here as it does for real ones.
"""

import asyncio
import errno
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from typing_extensions import override

from backends.base import Acquisition, Command, ExecutionResult, OnOutput, Slot, ToolBackend
from backends.resources import USUAL, Resources
from trajectories.errors import CapacityExceeded, LeaseExpired

Answer = ExecutionResult | BaseException | str
"""What a command gives: a result, an error to raise, or the standard output of a success."""

Script = Callable[[str], Answer] | Mapping[str, Answer]
"""Answers by command; what a mapping lacks succeeds and prints nothing."""


class FakeSlot(Slot):
    """A slot made of a dictionary and a script.

    Attributes:
        files: Contents by absolute path; a directory is there as long as a file is below it.
        commands: What was run, in order.
    """

    workspace = "/workspace"

    def __init__(
        self, task_id: str = "fake", script: Script | None = None, files: Mapping[str, bytes] | None = None
    ):
        self.task_id = task_id
        self.commands: list[str] = []
        self.files = {self._resolve(path): data for path, data in (files or {}).items()}
        self._script: Script = {} if script is None else script
        self._expired = False

    def expire(self) -> None:
        """End the lease."""
        self._expired = True

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
        self._check()
        self.commands.append(command)
        answer = self._script(command) if callable(self._script) else self._script.get(command, "")
        if isinstance(answer, BaseException):
            raise answer
        result = ExecutionResult(answer, "", 0) if isinstance(answer, str) else answer
        if on_output is not None and result.stdout:
            on_output("stdout", result.stdout.encode())
        return result

    @override
    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._check()
        self._refuse_directory(path)
        self.files[self._resolve(path)] = bytes(data)

    @override
    async def read_file(self, path: str, *, max_bytes: int = 64 * 2**20) -> bytes:
        self._check()
        self._refuse_directory(path)
        data = self.files.get(self._resolve(path))
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, f"larger than max_bytes={max_bytes}", path)
        return data

    @override
    async def upload(self, source: Path, destination: str) -> None:
        for path in await asyncio.to_thread(lambda: sorted(source.rglob("*"))):
            if path.is_file():
                data = await asyncio.to_thread(path.read_bytes)
                await self.write_file(posixpath.join(destination, str(path.relative_to(source))), data)

    @override
    async def download(self, source: str, destination: Path, *, max_bytes: int = 2**30) -> None:
        self._check()
        below = self._below(source)
        if not below:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if sum(map(len, below.values())) > max_bytes:
            raise OSError(errno.EFBIG, f"more than max_bytes={max_bytes}", source)
        await asyncio.to_thread(_write_all, destination, below)

    def _check(self) -> None:
        if self._expired:
            raise LeaseExpired(f"the slot of task {self.task_id!r} was used after its release")

    def _resolve(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.workspace, path))

    def _below(self, path: str) -> dict[str, bytes]:
        folder = self._resolve(path).rstrip("/") + "/"
        return {
            name.removeprefix(folder): data for name, data in self.files.items() if name.startswith(folder)
        }

    def _refuse_directory(self, path: str) -> None:
        if self._resolve(path) == self.workspace or self._below(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


class FakeBackend(ToolBackend):
    """Hands out `FakeSlot`s.

    Args:
        script: Answers to the commands of every slot.
        files: What every slot starts with.
        max_slots: Leased at a time.
        failure: Raised instead of every lease.
    """

    def __init__(
        self,
        script: Script | None = None,
        files: Mapping[str, bytes] | None = None,
        max_slots: int = 32,
        failure: BaseException | None = None,
    ):
        self.slots: list[FakeSlot] = []
        """Every slot handed out, in order."""
        self._make = lambda task_id: FakeSlot(task_id, script, files)
        self._places = asyncio.Semaphore(max_slots)
        self._leased = set[Slot]()
        self._failure = failure

    @override
    async def start(self) -> None:
        pass

    @override
    async def stop(self) -> None:
        for slot in list(self._leased):
            await self.release(slot)

    @override
    def acquire(
        self,
        task_id: str,
        *,
        image: str | None = None,
        resources: Resources = USUAL,
        timeout_s: float | None = None,
    ) -> Acquisition:
        return Acquisition(lambda: self._acquire(task_id, timeout_s), self.release)

    @override
    async def release(self, slot: Slot, reset_workspace: bool = True) -> None:
        if isinstance(slot, FakeSlot) and slot in self._leased:
            self._leased.remove(slot)
            slot.expire()
            self._places.release()

    @override
    async def execute_batch(self, commands: Iterable[Command]) -> list[ExecutionResult | BaseException]:
        runs = (entry.slot.exec(entry.command, timeout_s=entry.timeout_s) for entry in commands)
        return await asyncio.gather(*runs, return_exceptions=True)

    async def _acquire(self, task_id: str, timeout_s: float | None) -> Slot:
        if self._failure is not None:
            raise self._failure
        try:
            async with asyncio.timeout(timeout_s):
                await self._places.acquire()
        except TimeoutError:
            raise CapacityExceeded(f"no slot within {timeout_s:g} s; all are leased") from None
        slot = self._make(task_id)
        self.slots.append(slot)
        self._leased.add(slot)
        return slot


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
