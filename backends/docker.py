"""Sandboxes in containers of a Docker engine.

The warden is the container's process 1 on the attached stream, every shell is an exec on a stream of its
own, and all streams stay open: a command costs no API call. Where the engine is on this host and this process
may look into its containers, shells talk over named pipes instead, past the engine. The container lives by
its standard input. When the harness dies, the engine closes it, the warden exits, and the engine removes the
container.
"""

import asyncio
import os
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from backends.docker_api import DEFAULT_HOST, DockerApi, EngineError, remove_container
from backends.docker_images import DockerImages
from backends.fifos import PipeFolder
from backends.finish import finish
from backends.link import BOOTSTRAP, STDOUT, Link, Receive, Sandbox
from backends.maker import Maker
from backends.owner import Owner
from backends.pipes import PipeReader
from backends.reaper import reap
from backends.warden import Warden
from trajectories.errors import SandboxDied, SandboxUnavailable

DESTROY_TIMEOUT_S = 30.0
SHELL_BOOTSTRAP = f"exec 3>/proc/1/fd/3; {BOOTSTRAP}"


@dataclass(frozen=True, slots=True)
class DockerLimits:
    """What a container is made from, and what it may use."""

    image: str = "debian:stable-slim"
    """Default image: a name, ``context:DIRECTORY`` with a Dockerfile, or ``rootfs:FILE.tar``. It needs bash,
    coreutils and tar, nothing else."""
    host: str = DEFAULT_HOST
    user: str = "1000:1000"
    workspace: str = "/workspace"
    read_only: bool = True
    """Whether the image can't be written; the workspace, /tmp and the home are then in memory. False is for
    images that bring their workspace; disk use is then bounded by the engine alone."""
    disk_mb: int = 1024
    """Of the workspace; /tmp and the home have as much again. Counts as memory."""
    inodes: int = 200_000
    processes: int = 512
    memory_mb: int = 4096
    """Of the whole container."""
    cpus: float = 2.0
    max_life_s: float = 24 * 3600.0
    """After this the reaper removes a container whoever owns it."""
    start_timeout_s: float = 60.0


class DockerSandbox(Sandbox):
    """One container."""

    def __init__(self, api: DockerApi, container: str, link: Link, limits: DockerLimits):
        self.workspace = limits.workspace
        self.temporary = ("/tmp", "/home/agent", "/dev/shm")
        self._api = api
        self.container = container
        self._link = link

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        request = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": ["bash", "--noprofile", "--norc", "-c", SHELL_BOOTSTRAP, "shell", name],
            "Env": [f"LACHESIS_SHELL={name}"],
            "WorkingDir": self.workspace,
        }
        try:
            exec_id = (await self._api.call("POST", f"/containers/{self.container}/exec", request))["Id"]
            return await self._api.attach(f"/exec/{exec_id}/start", receive, {"Detach": False, "Tty": False})
        except (EngineError, SandboxUnavailable) as error:
            raise SandboxDied(f"no shell could be opened in the container: {error}") from error

    @override
    async def destroy(self) -> None:
        """Remove the container and wait until the engine no longer knows it."""
        self._link.close()
        await _remove(self._api, self.container)


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
            await pipes.prepare()
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


def _reach_into(container: str, first: int, warden: Warden) -> PipeFolder | None:
    """Open the folder of a container's pipes; None if its first process is not one that we may look into."""
    try:
        if container not in Path(f"/proc/{first}/cgroup").read_text():
            return None  # the engine counts processes in a namespace that is not ours
        return PipeFolder(Path(f"/proc/{first}/root"), warden)
    except OSError:
        return None


async def _remove(api: DockerApi, container: str) -> None:
    async with asyncio.timeout(DESTROY_TIMEOUT_S):
        await remove_container(api, container)


class DockerMaker(Maker):
    """Makes hardened containers."""

    def __init__(self, limits: DockerLimits):
        self._limits = limits
        self._api = DockerApi(limits.host)
        self._images = DockerImages(self._api)
        self._run_id = uuid.uuid4().hex

    @override
    async def check(self) -> None:
        await reap(self._api)
        await self._images.resolve(self._limits.image)

    @override
    async def make(self, image: str | None) -> tuple[Sandbox, Warden]:
        limits, warden = self._limits, Warden()
        name = await self._images.resolve(image or limits.image)
        request = container_request(name, limits, self._labels())
        try:
            container = (await self._api.call("POST", "/containers/create", request))["Id"]
        except EngineError as error:
            raise SandboxUnavailable(f"no container could be created from {name!r}: {error}") from error
        try:
            path = f"/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1"
            link = await self._api.attach(path, warden.receive)
            await self._api.call("POST", f"/containers/{container}/start")
            await warden.attach(link, limits.start_timeout_s)
            sandbox = await self._nearest(DockerSandbox(self._api, container, link, limits), warden)
        except BaseException as error:
            await finish(_remove(self._api, container))
            if isinstance(error, EngineError):
                raise SandboxUnavailable(f"the container did not start: {error}") from error
            raise
        return sandbox, warden

    async def _nearest(self, sandbox: DockerSandbox, warden: Warden) -> Sandbox:
        """Return the sandbox with its shells on named pipes, if this process can reach into the container."""
        if not self._api.is_local:
            return sandbox
        first = (await self._api.call("GET", f"/containers/{sandbox.container}/json"))["State"]["Pid"]
        pipes = _reach_into(sandbox.container, first, warden)
        return sandbox if pipes is None else await NearbyContainer.open(sandbox, pipes, warden)

    @override
    async def close(self) -> None:
        await self._api.close()

    def _labels(self) -> dict[str, str]:
        expires = str(int(time.time() + self._limits.max_life_s))
        return {"lachesis.run": self._run_id, "lachesis.expires": expires, **Owner.current().labels()}


def container_request(image: str, limits: DockerLimits, labels: dict[str, str]) -> dict[str, Any]:
    """Compose the request that creates a container which can reach nothing and gain nothing."""
    uid, _, gid = limits.user.partition(":")
    options = (
        f"rw,exec,nosuid,nodev,size={limits.disk_mb}m,nr_inodes={limits.inodes},uid={uid},gid={gid or uid}"
    )
    private = {"/tmp": f"{options},mode=1777", "/home/agent": f"{options},mode=755"}
    if limits.read_only:
        private[limits.workspace] = f"{options},mode=755"
    private["/run/lachesis"] = f"rw,nosuid,nodev,size=16m,nr_inodes=4096,uid={uid},gid={gid or uid},mode=700"
    return {
        "Image": image,
        "Entrypoint": ["bash", "--noprofile", "--norc", "-c", BOOTSTRAP, "sandbox"],
        "Cmd": ["-c=0"],
        "User": limits.user,
        "WorkingDir": limits.workspace,
        "Hostname": "sandbox",
        "Env": ["HOME=/home/agent", "USER=agent", "LANG=C.UTF-8", "TERM=dumb"],
        "Labels": labels,
        "OpenStdin": True,
        "StdinOnce": True,
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            "IpcMode": "private",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": limits.read_only,
            "Tmpfs": private,
            "PidsLimit": limits.processes,
            "Memory": limits.memory_mb * 2**20,
            "MemorySwap": limits.memory_mb * 2**20,
            "NanoCpus": int(limits.cpus * 1e9),
            "OomScoreAdj": 1000,
            "LogConfig": {"Type": "none"},  # the engine would write every answer of the warden to disk
        },
    }
