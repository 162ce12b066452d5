"""What leaves the agent's sandbox to be judged elsewhere: regular files and folders below declared paths.

Everything that arrives is hostile. Links could lead the judge to files the agent may not see, devices and
sparse files could exhaust the host. So the sandbox is asked for files and folders alone, and whatever else
arrives all the same is refused. A refusal is the agent's doing and no failure of the world: an agent that
could void its rollout would void the bad ones.
"""

import asyncio
import posixpath
import shlex
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from backends.archive import unpack
from backends.base import OnOutput, Slot, UnsafeArchive
from trajectories.errors import ConfigError, RewardError

MAX_NAME = 1024
"""Longest path of a file; a host's own limit must not be what stops us."""


class ArtefactsRefused(Exception):
    """What the agent left can't be taken; the message says why."""


@dataclass(frozen=True, slots=True)
class Artefacts:
    """Which files are taken from a workspace."""

    paths: Sequence[str] = (".",)
    """Files and folders, relative to the workspace."""
    without: Sequence[str] = ()
    """Shell patterns of what is left behind, with all below it: of a name anywhere, or of a path such as
    ``./tests``, told by its slash."""
    max_bytes: int = 64 * 2**20
    """All files together."""
    max_files: int = 20_000

    def __post_init__(self) -> None:
        for path in self.paths:
            if not path or path.startswith("/") or ".." in PurePosixPath(path).parts:
                raise ConfigError(f"artefacts: {path!r} is no path inside the workspace")

    def find(self, action: str) -> str:
        """Compose the command that does something with each of these files and folders, if it is there."""
        starts = shlex.join(_dotted(path) for path in self.paths)
        skip = " -o ".join(_matches(pattern) for pattern in self.without)
        prune = f"\\( {skip} \\) -prune -o" if skip else ""
        return f"find {starts} {prune} {action} 2>/dev/null"

    async def collect(self, slot: Slot, folder: Path, timeout_s: float) -> None:
        """Copy them from a workspace into a folder of the host, as one stream.

        Raises:
            ArtefactsRefused: They are too many or too large, or something else than a file arrived.
            RewardError: It did not end in time.
            SandboxError: The sandbox failed.
        """
        # The order matters to tar: what stands after --files-from does not hold for these files.
        tar = "tar --create --no-recursion --hard-dereference --null --verbatim-files-from --files-from=-"
        listing = self.find("\\( -type f -o -type d \\) -print0")
        command = f"cd {shlex.quote(slot.workspace)} && {listing} | {tar} --ignore-failed-read --file=-"
        with tempfile.TemporaryFile() as stream:
            sent = await slot.exec(
                command,
                timeout_s=timeout_s,
                shell="control",
                isolated=True,
                max_output_bytes=4096,
                on_output=self._into(stream),
            )
            if sent.timed_out:
                raise RewardError(f"the artefacts did not arrive within {timeout_s:g} s")
            await asyncio.to_thread(self._unpack, stream, folder)

    async def clear(self, slot: Slot, timeout_s: float) -> None:
        """Delete them from a workspace.

        Raises:
            RewardError: It failed.
        """
        remove = self.find("-type f -exec rm -f {} +")  # fails where a path is missing, which is fine
        command = f"cd {shlex.quote(slot.workspace)} && {{ {remove}; true; }}"
        if (await slot.exec(command, timeout_s=timeout_s, shell="control", isolated=True)).exit_code != 0:
            raise RewardError("the judge's workspace could not be cleared")

    def _into(self, stream: BinaryIO) -> OnOutput:
        limit = self.max_bytes + 1024 * self.max_files  # headers and padding come on top of the files

        def write(channel: str, data: bytes) -> None:
            if channel != "stdout":
                return
            if stream.tell() + len(data) > limit:
                raise ArtefactsRefused(f"more than {self.max_bytes} bytes")
            stream.write(data)

        return write

    def _unpack(self, stream: BinaryIO, folder: Path) -> None:
        stream.seek(0)
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                self._check(tar)
            unpack(stream, folder)
        except (tarfile.TarError, UnsafeArchive) as error:
            raise ArtefactsRefused(str(error)) from error

    def _check(self, tar: tarfile.TarFile) -> None:
        total_bytes = 0
        for count, member in enumerate(tar, 1):
            total_bytes += member.size
            if not (member.isdir() or member.isreg()) or member.issparse():
                raise ArtefactsRefused(f"{member.name!r} is neither a plain file nor a folder")
            if len(member.name) > MAX_NAME:
                raise ArtefactsRefused(f"a path of {len(member.name)} characters")
            if count > self.max_files or total_bytes > self.max_bytes:
                raise ArtefactsRefused(f"more than {self.max_files} files or {self.max_bytes} bytes")


def _dotted(path: str) -> str:
    """Write a path as `find` prints it, so that none looks like an option."""
    normal = posixpath.normpath(path)
    return normal if normal == "." else f"./{normal}"


def _matches(pattern: str) -> str:
    return f"-path {shlex.quote(_dotted(pattern))}" if "/" in pattern else f"-name {shlex.quote(pattern)}"
