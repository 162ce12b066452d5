"""Checkpoints that are whole or not there: whenever the process dies, the newest folder can be gone on from.

A checkpoint is written under another name, flushed to the disk and then renamed; an old one is renamed before
it is deleted. So no folder named ``step-…`` is ever half a checkpoint.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

_PARTIAL = ".partial"


class Checkpoints:
    """The folder that holds the checkpoints of a run.

    Args:
        folder: Made if it isn't there; unfinished leftovers in it are removed.
        keep: How many of the newest stay.
    """

    def __init__(self, folder: Path, keep: int):
        self._folder = folder
        self._keep = keep
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(leftover)

    def all(self) -> list[Path]:
        """Return the checkpoints, the oldest first."""
        return sorted(path for path in self._folder.glob("step-*") if path.suffix != _PARTIAL)

    def latest(self) -> Path | None:
        """Return the newest checkpoint; None where there is none."""
        return next(reversed(self.all()), None)

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Make the checkpoint of a step durable with what ``write`` puts into a folder; return its path."""
        path = self._folder / f"step-{step:08d}"
        unfinished = path.with_suffix(_PARTIAL)
        unfinished.mkdir()
        write(unfinished)
        for file in (*unfinished.rglob("*"), unfinished):
            flush(file)
        os.rename(unfinished, path)
        flush(self._folder)
        for old in self.all()[: -self._keep]:
            doomed = old.with_suffix(_PARTIAL)
            os.rename(old, doomed)
            shutil.rmtree(doomed)
        return path


def flush(path: Path) -> None:
    """Force a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
