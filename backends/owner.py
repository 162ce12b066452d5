"""Who made a sandbox: one process of one boot of one host, beyond doubt.

A process id alone is reused; with the time the process began and the boot it belongs to, it never is.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of this or another host."""

    pid: int
    started_ticks: int
    boot_id: str

    @classmethod
    def current(cls) -> "Owner":
        """Return the running process."""
        pid = os.getpid()
        return cls(pid, _started_ticks(pid) or 0, _boot_id())

    @classmethod
    def of(cls, labels: dict[str, str]) -> "Owner | None":
        """Read what `labels` wrote; None where it is missing or not ours."""
        try:
            pid, started_ticks = labels["lachesis.owner"].split("@")
            return cls(int(pid), int(started_ticks), labels["lachesis.boot"])
        except (KeyError, ValueError):
            return None

    def labels(self) -> dict[str, str]:
        """Return the labels that name this owner."""
        return {"lachesis.owner": f"{self.pid}@{self.started_ticks}", "lachesis.boot": self.boot_id}

    def is_gone(self) -> bool:
        """Whether the process is known to have ended; False where another host would have to be asked."""
        return self.boot_id == _boot_id() and _started_ticks(self.pid) != self.started_ticks


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
