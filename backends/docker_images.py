"""What containers start from: a name, a directory with a Dockerfile, or the tarball of a root file system.

What is built gets a tag made of its content, so that it is built once per engine, however many runs need
it.
"""

import asyncio
import hashlib
import tempfile
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from backends.archive import pack
from backends.docker_api import DockerApi, EngineError
from trajectories.errors import ConfigError, SandboxUnavailable


class DockerImages:
    """Resolves image specifications on one engine; each is prepared once, however many ask at a time."""

    def __init__(self, api: DockerApi):
        self._api = api
        self._ready: dict[str, str] = {}
        self._preparing = asyncio.Lock()

    async def resolve(self, image: str) -> str:
        """Return a name that the engine can start, after pulling, building or importing if it must.

        Raises:
            ConfigError: The file or directory isn't there.
            SandboxUnavailable: The engine could not get or make the image.
        """
        async with self._preparing:
            if image not in self._ready:
                self._ready[image] = await self._prepare(image)
            return self._ready[image]

    async def _prepare(self, image: str) -> str:
        kind, _, path = image.partition(":")
        try:
            if kind == "context":
                return await self._build(Path(path))
            if kind == "rootfs":
                return await self._import(Path(path))
            return await self._pull(image)
        except EngineError as error:
            raise SandboxUnavailable(f"image {image!r}: {error}", retryable=False) from error

    async def _pull(self, name: str) -> str:
        if not await self._exists(name):
            repository, _, tag = name.rpartition(":")
            if not repository or "/" in tag:
                repository, tag = name, "latest"
            async for _ in self._api.send("/images/create", None, fromImage=repository, tag=tag):
                pass
        return name

    async def _build(self, context: Path) -> str:
        if not (context / "Dockerfile").is_file():
            raise ConfigError(f"image: {context} holds no Dockerfile")
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(pack, context, archive)
            name = f"lachesis-build:{await asyncio.to_thread(_digest, archive)}"
            if not await self._exists(name):
                async for _ in self._api.send("/build", archive, t=name, rm=True, forcerm=True):
                    pass
        return name

    async def _import(self, tarball: Path) -> str:
        try:
            rootfs = await asyncio.to_thread(tarball.open, "rb")
        except OSError as error:
            raise ConfigError(f"image: {tarball} can't be read: {error.strerror}") from error
        with rootfs:
            tag = await asyncio.to_thread(_digest, rootfs)
            name = f"lachesis-rootfs:{tag}"
            if not await self._exists(name):
                query = {"fromSrc": "-", "repo": "lachesis-rootfs", "tag": tag}
                async for _ in self._api.send("/images/create", rootfs, **query):
                    pass
        return name

    async def _exists(self, name: str) -> bool:
        try:
            await self._api.call("GET", f"/images/{name}/json")
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True


def _digest(stream: BinaryIO) -> str:
    stream.seek(0)
    digest = hashlib.file_digest(cast(BufferedReader, stream), "sha256").hexdigest()
    stream.seek(0)
    return digest[:32]
