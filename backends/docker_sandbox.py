"""One container, and the ways to its shells.

Every shell is an exec on a stream of its own, and all streams stay open: a command costs no API call. Where
the engine is on this host and this process may look into its containers, shells talk over named pipes
instead, past the engine, which would relay every message through three processes.
"""

import asyncio
import os
from functools import partial
from pathlib import Path

from typing_extensions import override

from backends.docker_api import DockerApi, EngineError, remove_container
from backends.fifos import PipeFolder
from backends.link import BOOTSTRAP, STDOUT, Link, Receive, Sandbox
from backends.pipes import PipeReader
from backends.warden import Warden
from trajectories.errors import SandboxDied, SandboxUnavailable

DESTROY_TIMEOUT_S = 30.0
SHELL_BOOTSTRAP = f"exec 3>/proc/1/fd/3; {BOOTSTRAP}"


class DockerSandbox(Sandbox):
    """One container."""

    def __init__(self, api: DockerApi, container: str, link: Link, workspace: str):
        self.workspace = workspace
        self.temporary = ("/tmp", "/home/agent", "/dev/shm")
        self.api = api
        self.container = container
        self._link = link

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        request = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": ["bash", "--noprofile", "--norc", "-c", SHELL_BOOTSTRAP, "shell", name],
            "WorkingDir": self.workspace,
        }
        try:
            exec_id = (await self.api.call("POST", f"/containers/{self.container}/exec", request))["Id"]
            return await self.api.attach(f"/exec/{exec_id}/start", receive, {"Detach": False, "Tty": False})
        except (EngineError, SandboxUnavailable) as error:
            raise SandboxDied(f"no shell could be opened in the container: {error}") from error

    @override
    async def destroy(self) -> None:
        """Remove the container and wait until the engine no longer knows it."""
        self._link.close()
        await remove(self.api, self.container)


class NearbyContainer(Sandbox):
    """A container whose shells this process talks to over named pipes, past the engine."""

    def __init__(self, sandbox: DockerSandbox, pipes: PipeFolder, answers: PipeReader):
        self.workspace = sandbox.workspace
        self.temporary = sandbox.temporary
        self.container = sandbox.container
        self._sandbox = sandbox
        self._pipes = pipes
        self._answers = answers

    @classmethod
    async def open(cls, sandbox: DockerSandbox, pipes: PipeFolder, warden: Warden) -> "NearbyContainer":
        """Have the warden answer through a pipe, too.

        Raises:
            SandboxDied: The container has ended.
        """
        try:
            await warden.ask("side")
            answers = PipeReader(pipes.take("side", os.O_RDONLY), partial(warden.receive, STDOUT))
        except BaseException as error:
            pipes.close()
            if isinstance(error, OSError):
                raise SandboxDied(f"the container ended as it started: {error}") from error
            raise
        return cls(sandbox, pipes, answers)

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        return await self._pipes.open_shell(name, receive)

    @override
    async def destroy(self) -> None:
        self._answers.close()
        self._pipes.close()
        await self._sandbox.destroy()


async def nearest(sandbox: DockerSandbox, warden: Warden) -> Sandbox:
    """Return the container with its shells on named pipes, if this process can reach into it.

    Raises:
        EngineError: The engine knows nothing of it any more.
        SandboxDied: It has ended.
    """
    if not sandbox.api.is_local:
        return sandbox
    first = (await sandbox.api.call("GET", f"/containers/{sandbox.container}/json"))["State"]["Pid"]
    pipes = _reach_into(sandbox.container, first, warden)
    return sandbox if pipes is None else await NearbyContainer.open(sandbox, pipes, warden)


async def remove(api: DockerApi, container: str) -> None:
    """Remove a container in bounded time, and wait until the engine no longer knows it."""
    async with asyncio.timeout(DESTROY_TIMEOUT_S):
        await remove_container(api, container)


def _reach_into(container: str, first: int, warden: Warden) -> PipeFolder | None:
    """Open the folder of a container's pipes; None if its first process is not one that we may look into."""
    try:
        if container not in Path(f"/proc/{first}/cgroup").read_text():
            return None  # the engine counts processes in a namespace that is not ours
        return PipeFolder(Path(f"/proc/{first}/root"), warden)
    except OSError:
        return None
