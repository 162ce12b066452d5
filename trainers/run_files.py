"""The small files of a training run: its lock, its metrics, and the last policy version it gave out."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from trainers.checkpoints import flush
from trajectories.errors import ConfigError


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep the folder of a run from other processes while the block runs.

    Raises:
        ConfigError: Another process has it, or it can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"output_dir: cannot write {folder}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"output_dir: another process trains in {folder}") from error
        yield
    finally:
        os.close(lock)


class MetricsFile:
    """One JSON object a line, one line a step.

    Args:
        path: Made if it isn't there.
        step: Steps that stand; lines of later ones, which a crash undid, and a torn last line are removed.
    """

    def __init__(self, path: Path, step: int):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        _replace(path, b"".join(line for line in whole if msgspec.json.decode(line)["step"] <= step))

    def append(self, metrics: dict[str, Any]) -> None:
        """Write a step's line; numbers that are not finite become null."""
        with open(self._path, "ab") as file:
            file.write(msgspec.json.encode(metrics) + b"\n")


class VersionFile:
    """Numbers that are never given twice, whatever dies when."""

    def __init__(self, path: Path):
        self._path = path

    def next(self) -> int:
        """Return the next number, from 0, once the disk knows that it is taken."""
        number = int(self._path.read_text()) + 1 if self._path.exists() else 0
        _replace(self._path, str(number).encode())
        return number


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(path.name + ".partial")
    unfinished.write_bytes(content)
    flush(unfinished)
    os.replace(unfinished, path)
    flush(path.parent)
