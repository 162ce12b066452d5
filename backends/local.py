"""Sandboxes on this host: bubblewrap namespaces, nothing on disk.

All that a sandbox is (processes, mounts, files) lives in namespaces that the kernel ends together with its
first process, as it ends that with the harness. So a crash of the harness leaves nothing to clean up but
empty control groups, which go by themselves, and there is no reaper.
"""

import asyncio
import os
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from backends.bubblewrap import HostFacts, Job, SandboxLimits, bubblewrap_job
from backends.fifos import PipeFolder
from backends.finish import undo
from backends.launcher import FirstProcess, Launcher
from backends.link import Link, Receive, Sandbox
from backends.maker import Maker
from backends.memory_groups import MemoryGroup, MemoryGroups
from backends.overlays import overlays_work
from backends.pipes import PipeLink, make_pipes
from backends.resources import Resources
from backends.warden import Warden
from trajectories.errors import ConfigError, SandboxUnavailable


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

    def __init__(self, process: FirstProcess, link: Link, group: MemoryGroup | None):
        self._process = process
        self._group = group
        self._link = link
        self._pipes: PipeFolder | None = None

    @classmethod
    async def start(
        cls, launcher: Launcher, job: Job, warden: Warden, group: MemoryGroup | None, timeout_s: float
    ) -> "LocalSandbox":
        """Start a sandbox and wait until its warden is up.

        Args:
            launcher: What starts it.
            job: What becomes it.
            warden: Its warden.
            group: What bounds its memory as a whole.
            timeout_s: How long that may take.

        Raises:
            SandboxUnavailable: This host can't; the message holds what its tools said.
        """
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = make_pipes(3)
        link = PipeLink(to_stdin, from_stdout, from_stderr, warden.receive)
        try:
            process = await launcher.start(job, stdin, stdout, stderr)
        except BaseException:
            link.close()
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        sandbox = cls(process, link, group)
        try:
            await warden.attach(link, timeout_s)
            sandbox._pipes = PipeFolder(Path(f"/proc/{process.child()}/root"), warden)
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
        self._link.close()
        if self._pipes is not None:
            self._pipes.close()
        await self._process.end()
        if self._group is not None:
            await self._group.remove()


class LocalMaker(Maker):
    """Makes bubblewrap sandboxes."""

    def __init__(self, limits: LocalLimits):
        self._limits = limits
        self._launcher: Launcher | None = None
        self._closed = False
        self._groups: MemoryGroups | None = None
        self._workspace: Path | None = None

    @cached_property
    def _host(self) -> HostFacts:
        return HostFacts.here(self._limits.python)

    @override
    async def check(self) -> None:
        self._closed = False
        self._running_launcher()
        self._groups = self._groups or MemoryGroups.here()
        if self._limits.workspace_from is not None:
            folder = self._limits.workspace_from.resolve()
            self._workspace = folder if await asyncio.to_thread(overlays_work, folder) else None

    @override
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        if image is not None:
            raise ConfigError("image: the local backend has none; use the docker backend")
        if self._closed:
            raise SandboxUnavailable("the backend was stopped", retryable=False)
        launcher, warden = self._running_launcher(), Warden()
        limits = resources.applied_to(self._limits)
        group = None if self._groups is None else self._groups.make(limits.total_memory_mb)
        job = bubblewrap_job(limits, self._host, group and group.folder, self._workspace)
        try:
            with nullcontext() if self._groups is None else self._groups.quick():
                sandbox = await LocalSandbox.start(launcher, job, warden, group, limits.start_timeout_s)
        except BaseException:
            if group is not None:
                await undo(group.remove())
            raise
        sandbox.furnished = self._workspace is not None
        return sandbox, warden

    @override
    async def close(self) -> None:
        self._closed = True
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None
        if self._groups is not None:
            self._groups.close()
            self._groups = None

    def _running_launcher(self) -> Launcher:
        if self._launcher is not None and not self._launcher.alive:
            self._launcher.close()
            self._launcher = None
        self._launcher = self._launcher or Launcher()
        return self._launcher
