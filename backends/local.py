"""Sandboxes on this host: bubblewrap namespaces, no daemon, nothing on disk.

All that a sandbox is (processes, mounts, files) lives in namespaces that the kernel ends together with its
first process. So a crash of the harness leaves nothing to clean up but empty control groups, which go by
themselves, and there is no reaper.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from backends.bubblewrap import HEED_SIGNALS, HostFacts, SandboxLimits, launch_command
from backends.fifos import PipeFolder
from backends.finish import undo
from backends.link import Link, Receive, Sandbox
from backends.maker import Maker
from backends.memory_groups import MemoryGroup, MemoryGroups
from backends.overlays import overlays_work
from backends.pipes import PipeLink
from backends.resources import Resources
from backends.warden import Warden
from trajectories.errors import ConfigError, SandboxUnavailable

DESTROY_TIMEOUT_S = 10.0
RESTORED = {signal.SIGPIPE, signal.SIGXFSZ}
"""Signals that `subprocess.Popen` makes programs heed again."""


@dataclass(frozen=True, slots=True)
class LocalLimits(SandboxLimits):
    """What one sandbox may use."""

    python: str | None = None
    """Folder of a Python environment, such as ``.venv``: seen read-only, its programs first on PATH. None is
    the Python of this process without its packages."""
    workspace_from: Path | None = None
    """See `PoolLimits`; laid under the workspace where that works: see `overlays`."""
    total_memory_mb: int = 4096
    """Of all processes and files together, where control groups can be made (``python -m backends.doctor``
    tells); elsewhere each process is bounded alone, by ``memory_mb``, and files by ``disk_mb``."""

    def __post_init__(self) -> None:
        if self.python is not None and not Path(self.python, "bin/python3").exists():
            raise ConfigError(f"python: {self.python} holds no bin/python3; name a Python environment")


class LocalSandbox(Sandbox):
    """One bubblewrap sandbox."""

    workspace = "/workspace"
    temporary = ("/tmp", "/home/agent", "/dev/shm")

    def __init__(self, process: "subprocess.Popen[bytes]", link: Link, group: MemoryGroup | None):
        self._process = process
        self._group = group
        self._link = link
        self._pipes: PipeFolder | None = None

    @classmethod
    async def start(
        cls,
        warden: Warden,
        limits: LocalLimits,
        host: HostFacts,
        group: MemoryGroup | None,
        workspace: Path | None,
    ) -> "LocalSandbox":
        """Start a sandbox and wait until its first process is up.

        Args:
            warden: Its warden.
            limits: What it may use.
            host: What is known of this host.
            group: What bounds its memory as a whole.
            workspace: Folder of the host over which its workspace is laid.

        Raises:
            SandboxUnavailable: This host can't; the message holds what its tools said.
        """
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = (os.pipe() for _ in range(3))
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - a vfork and an exec: done in a millisecond
                [*_heed_signals(), *launch_command(limits, host, group and group.folder, workspace)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
        except OSError as error:
            for fd in (to_stdin, from_stdout, from_stderr):
                os.close(fd)
            raise SandboxUnavailable(f"can't run {error.filename!r}: {error.strerror}") from error
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        sandbox = cls(process, PipeLink(to_stdin, from_stdout, from_stderr, warden.receive), group)
        sandbox.furnished = workspace is not None
        try:
            await warden.attach(sandbox._link, limits.start_timeout_s)
            first = _only_child(_only_child(process.pid))
            sandbox._pipes = PipeFolder(Path(f"/proc/{first}/root"), warden)
        except BaseException as error:
            await undo(sandbox.destroy())
            if isinstance(error, OSError | ValueError):
                raise SandboxUnavailable(f"the sandbox ended as it started: {error}") from error
            raise
        return sandbox

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        assert self._pipes is not None
        return await self._pipes.open_shell(name, receive)

    @override
    async def destroy(self) -> None:
        """Kill the first process of the outer namespace; its parent ends only when all the rest is gone."""
        self._link.close()
        if self._pipes is not None:
            self._pipes.close()
        try:
            os.kill(_only_child(self._process.pid), signal.SIGKILL)
        except (OSError, ValueError):  # not there yet, or not any more
            self._process.kill()
        await _exited(self._process)
        if self._group is not None:
            await self._group.remove()


class LocalMaker(Maker):
    """Makes bubblewrap sandboxes."""

    def __init__(self, limits: LocalLimits):
        self._limits = limits
        self._groups: MemoryGroups | None = None
        self._workspace: Path | None = None

    @cached_property
    def _host(self) -> HostFacts:
        return HostFacts.here(self._limits.python)

    @override
    async def check(self) -> None:
        for tool in ("unshare", "setpriv", "mount"):
            if shutil.which(tool) is None:
                raise SandboxUnavailable(f"{tool!r} is not on PATH; install util-linux", retryable=False)
        self._groups = self._groups or MemoryGroups.here()
        if self._limits.workspace_from is not None:
            folder = self._limits.workspace_from.resolve()
            self._workspace = folder if await asyncio.to_thread(overlays_work, folder) else None

    @override
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        if image is not None:
            raise ConfigError("image: the local backend has none; use the docker backend")
        warden, limits = Warden(), resources.applied_to(self._limits)
        group = None if self._groups is None else self._groups.make(limits.total_memory_mb)
        try:
            with nullcontext() if self._groups is None else self._groups.quick():
                return await LocalSandbox.start(warden, limits, self._host, group, self._workspace), warden
        except BaseException:
            if group is not None:
                await undo(group.remove())
            raise

    @override
    async def close(self) -> None:
        if self._groups is not None:
            self._groups.close()
            self._groups = None


def _heed_signals() -> tuple[str, ...]:
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    return HEED_SIGNALS if ignored - RESTORED else ()


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


async def _exited(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process without blocking the loop and without a thread."""
    if process.poll() is not None:
        return
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    fd = os.pidfd_open(process.pid)
    loop.add_reader(fd, exited.set)
    try:
        async with asyncio.timeout(DESTROY_TIMEOUT_S):
            await exited.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    process.wait()
