"""One container, and the ways to its shells.

Every shell is an exec on a stream of its own, and all streams stay open: a command costs no API call. Where
the engine is on this host and this process may look into its containers, shells talk over named pipes
instead, past the engine, which would relay every message through three processes.
"""

import asyncio
import os
import re
import shlex
from collections.abc import Iterable
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
ENTER_TIMEOUT_S = 60.0
BASH = ("bash", "--noprofile", "--norc", "-c")
USER = re.compile(r"[^:]+(:[^:]+)?")
NO_SUCH_USER = re.compile(r"unable to find (user|group) |uids and gids must be in range")
NOT_THE_AGENTS = {"WorkingDir": "/", "Env": ["HOME", "USER"]}
"""Of processes of other users: where they start, and variables they don't have; home is then as listed."""


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
        try:
            command = (*BASH, f"{side_channel(1)}; {BOOTSTRAP}", "shell", name)
            return await self.execute(command, receive)
        except (EngineError, SandboxUnavailable) as error:
            raise SandboxDied(f"no shell could be opened in the container: {error}") from error

    @override
    async def enter(self, user: str, warden: Warden) -> "ContainerUser":
        if not USER.fullmatch(user):
            raise ValueError(f"user: {user!r} is no name or number, with or without a group after a colon")
        try:
            link = await self.execute((*BASH, BOOTSTRAP, "sandbox"), warden.receive, user)
            try:
                await warden.attach(link, ENTER_TIMEOUT_S)
            except BaseException:
                link.close()
                raise
        except (EngineError, SandboxUnavailable) as error:
            if NO_SUCH_USER.search(str(error)):
                raise ValueError(f"user: {user!r} can't be had: {error}") from error
            raise SandboxDied(f"{user!r} can't enter the container: {error}") from error
        return ContainerUser(self, user, warden, link)

    async def execute(self, command: Iterable[str], receive: Receive, user: str | None = None) -> Link:
        """Start a process in the container, as the agent or another user.

        Another user's home is the one in the container's list of users: nothing that the agent can write.

        Raises:
            EngineError: The engine refused.
            SandboxUnavailable: The engine can't be reached.
        """
        request = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": list(command),
            **({"WorkingDir": self.workspace} if user is None else {"User": user, **NOT_THE_AGENTS}),
        }
        exec_id = (await self.api.call("POST", f"/containers/{self.container}/exec", request))["Id"]
        return await self.api.attach(f"/exec/{exec_id}/start", receive, {"Detach": False, "Tty": False})

    @override
    async def destroy(self) -> None:
        """Remove the container and wait until the engine no longer knows it."""
        self._link.close()
        await remove(self.api, self.container)


class ContainerUser(Sandbox):
    """A container as another of its users sees it. What this user starts, only this user's warden can end."""

    def __init__(self, container: DockerSandbox, user: str, warden: Warden, link: Link):
        self.workspace = container.workspace
        self.temporary = container.temporary
        self._container = container
        self._user = user
        self._warden = warden
        self._link = link

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        enter = f"cd {shlex.quote(self.workspace)}; {side_channel(self._warden.pid)}; {BOOTSTRAP}"
        command = (*BASH, enter, "shell", name, self._warden.folder)
        try:
            return await self._container.execute(command, receive, self._user)
        except (EngineError, SandboxUnavailable) as error:
            raise SandboxDied(f"no shell could be opened for {self._user!r}: {error}") from error

    @override
    async def destroy(self) -> None:
        """Let the warden go; what the user started ends with the container."""
        self._link.close()


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
    async def enter(self, user: str, warden: Warden) -> Sandbox:
        return await self._sandbox.enter(user, warden)

    @override
    async def destroy(self) -> None:
        self._answers.close()
        self._pipes.close()
        await self._sandbox.destroy()


def side_channel(warden: int) -> str:
    """Return what makes a shell answer where a warden of the same user does."""
    return f"exec 3>/proc/{warden}/fd/3"


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
