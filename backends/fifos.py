"""Shells over named pipes, for sandboxes whose files this host can reach.

The warden makes the pipes inside the sandbox, the harness opens and removes them from outside. Nothing relays
what they carry, so a command costs one write and one wake-up. The folder is held open from before the agent's
first command: no link it makes later can lead an open elsewhere.
"""

import os
import stat
from pathlib import Path

from backends.link import BOOTSTRAP, Link, Receive
from backends.pipes import PipeLink
from backends.warden import Warden
from trajectories.errors import SandboxDied

FOLDER = "run/lachesis"


class PipeFolder:
    """The folder of a sandbox in which its warden makes named pipes.

    Args:
        root: The sandbox's root directory, as this host sees it.
        warden: What makes the pipes.

    Raises:
        OSError: The sandbox has ended, or this process may not look into it.
    """

    def __init__(self, root: Path, warden: Warden):
        self._warden = warden
        self._fd = os.open(root / FOLDER, os.O_PATH | os.O_DIRECTORY)

    async def open_shell(self, name: str, receive: Receive) -> Link:
        """Start a keeper on new pipes; see `Sandbox.open_shell`."""
        if await self._warden.ask("open", name, records=(BOOTSTRAP,)) != "opened":
            raise SandboxDied("the sandbox has no room for another shell")
        fds = list[int]()
        try:
            for stream, mode in (("in", os.O_WRONLY), ("out", os.O_RDONLY), ("err", os.O_RDONLY)):
                fds.append(self.take(f"{name}.{stream}", mode))
        except OSError as error:
            for fd in fds:
                os.close(fd)
            raise SandboxDied(f"the sandbox ended while a shell was opened: {error}") from error
        return PipeLink(*fds, receive=receive)

    def take(self, name: str, mode: int) -> int:
        """Open one end of a pipe that the warden made and holds open, and remove its name."""
        fd = os.open(name, mode | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=self._fd)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{name} is no pipe")
        os.unlink(name, dir_fd=self._fd)
        return fd

    def close(self) -> None:
        """Let go of the folder; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
