"""Control groups that bound the memory of whole local sandboxes, where this host lets us make them.

A group outlives the processes in it. So that none outlives a killed harness, a shell waits for the end of a
pipe that the harness holds, and removes what is left. The first process in a while that moves into any group
waits for a grace period of the kernel's, 10 ms and more; those soon after it need not. The shell tries such a
move at every line it gets, and it gets some while sandboxes start: the first wait goes on beside the start,
and the sandboxes' own moves are quick.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backends.owner import Owner

MOUNT = Path("/sys/fs/cgroup")
REMOVE_TIMEOUT_S = 5.0
MOVES_EVERY_S = 0.005
JANITOR = """
while read -r _; do echo 0 >"${1%/*}/cgroup.procs"; done 2>/dev/null
for _ in $(seq 600); do rmdir "$1"/*/ "$1"; [ -d "$1" ] || exit; sleep 0.1; done 2>/dev/null
"""


class MemoryGroup:
    """The group of one sandbox."""

    def __init__(self, folder: Path):
        self.folder = folder

    async def remove(self) -> None:
        """Remove the group once its processes have ended; idempotent.

        Raises:
            TimeoutError: Some have not.
        """
        async with asyncio.timeout(REMOVE_TIMEOUT_S):
            while True:
                try:
                    return self.folder.rmdir()
                except FileNotFoundError:
                    return None
                except OSError:
                    await asyncio.sleep(0.01)


class MemoryGroups:
    """The groups of one harness, all in a folder of theirs."""

    def __init__(self, parent: Path):
        owner = Owner.current()
        self.folder = parent / f"lachesis-{owner.pid}-{owner.started_ticks}-{os.urandom(4).hex()}"
        self._made = 0
        self._starting = 0
        self._moving: asyncio.Task[None] | None = None
        self.folder.mkdir()
        switch = self.folder / "cgroup.subtree_control"
        if switch.exists():  # in version 2
            switch.write_text("+memory")
        self._janitor = subprocess.Popen(
            ["sh", "-c", JANITOR, "janitor", str(self.folder)],
            bufsize=0,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @classmethod
    def here(cls) -> "MemoryGroups | None":
        """Return the groups of this process; None where it may not make any."""
        parent = find_parent(MOUNT, Path("/proc/self/cgroup").read_text())
        try:
            return None if parent is None else cls(parent)
        except OSError:
            return None

    def make(self, limit_mb: int) -> "MemoryGroup":
        """Make a group whose processes and files in memory have ``limit_mb`` together, and no swap."""
        group = self.folder / str(self._made)
        self._made += 1
        group.mkdir()
        limit = str(limit_mb * 2**20)
        settings = {"memory.max": limit, "memory.swap.max": "0", "memory.limit_in_bytes": limit}
        for name, value in {**settings, "memory.memsw.limit_in_bytes": limit}.items():
            if (group / name).exists():  # each version has its own; those of swap can be switched off
                (group / name).write_text(value)
        return MemoryGroup(group)

    @contextmanager
    def quick(self) -> Iterator[None]:
        """Keep moves into groups quick while the block runs, and for some milliseconds after it."""
        self._starting += 1
        if self._moving is None or self._moving.done():
            self._moving = asyncio.create_task(self._move())
        try:
            yield
        finally:
            self._starting -= 1

    async def _move(self) -> None:
        assert self._janitor.stdin is not None
        with suppress(OSError):  # it was killed
            while self._starting:
                self._janitor.stdin.write(b"\n")
                await asyncio.sleep(MOVES_EVERY_S)

    def close(self) -> None:
        """Remove the folder; what is still in it is removed when it ends."""
        with suppress(OSError):
            self.folder.rmdir()
        if self.folder.exists():
            assert self._janitor.stdin is not None
            self._janitor.stdin.close()
        else:
            self._janitor.kill()
            self._janitor.communicate()


def find_parent(mount: Path, own: str) -> Path | None:
    """Return the folder in which groups that bound memory can be made.

    Args:
        mount: Where control groups are mounted.
        own: Contents of ``/proc/self/cgroup``.

    In version 2 that is the parent of our own group, where it was delegated to us, or the root of all, and
    only if it hands the memory controller down.
    """
    unified = [line.removeprefix("0::/") for line in own.splitlines() if line.startswith("0::/")]
    for folder in (mount / path for path in [*(os.path.dirname(path) for path in unified), ""]):
        with suppress(OSError):
            controllers = (folder / "cgroup.subtree_control").read_text().split()
            if "memory" in controllers and os.access(folder / "cgroup.procs", os.W_OK):
                return folder
    version_1 = mount / "memory"
    if (version_1 / "memory.limit_in_bytes").exists() and os.access(version_1 / "cgroup.procs", os.W_OK):
        return version_1
    return None
