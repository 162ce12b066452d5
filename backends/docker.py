"""Makes sandboxes in containers of a Docker engine, and what they may use.

The warden is the container's process 1, on the attached stream. The container lives by its standard input:
when the harness dies, the engine closes it, the warden exits, and the engine removes the container.
"""

import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from backends.docker_api import DEFAULT_HOST, DockerApi, EngineError
from backends.docker_images import DockerImages
from backends.docker_sandbox import DockerSandbox, nearest, remove
from backends.finish import undo
from backends.link import BOOTSTRAP, Sandbox
from backends.maker import Maker
from backends.owner import Owner
from backends.reaper import reap
from backends.resources import Resources
from backends.warden import Warden
from trajectories.errors import ConfigError, SandboxUnavailable


@dataclass(frozen=True, slots=True)
class DockerLimits:
    """What a container is made from, and what it may use."""

    image: str = "debian:stable-slim"
    """Default image: a name, ``context:DIRECTORY`` with a Dockerfile, or ``rootfs:FILE.tar``. It needs bash,
    coreutils and tar, nothing else."""
    host: str = DEFAULT_HOST
    user: str = "1000:1000"
    """The agent's, as ``UID[:GID]``. Nothing is hidden from root: beside it commands have no other user."""
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

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+(:\d+)?", self.user):
            raise ConfigError(f"user: {self.user!r} is not UID[:GID], in numbers")


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
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        limits, warden = resources.applied_to(self._limits), Warden()
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
            sandbox = await nearest(DockerSandbox(self._api, container, link, limits.workspace), warden)
        except BaseException as error:
            await undo(remove(self._api, container))
            if isinstance(error, EngineError):
                raise SandboxUnavailable(f"the container did not start: {error}") from error
            raise
        return sandbox, warden

    @override
    async def close(self) -> None:
        await self._api.close()

    def _labels(self) -> dict[str, str]:
        expires = str(int(time.time() + self._limits.max_life_s))
        return {"lachesis.run": self._run_id, "lachesis.expires": expires, **Owner.current().labels()}


def container_request(image: str, limits: DockerLimits, labels: dict[str, str]) -> dict[str, Any]:
    """Compose the request that creates a container which can reach nothing and gain nothing."""
    uid, _, gid = limits.user.partition(":")
    options = f"rw,exec,nosuid,nodev,size={limits.disk_mb}m,nr_inodes={limits.inodes}"
    owned = f"{options},uid={uid},gid={gid or uid},mode=755"
    # /tmp is root's: who owns it may rename what others have there
    private = {"/tmp": f"{options},mode=1777", "/home/agent": owned}
    if limits.read_only:
        private[limits.workspace] = owned
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
