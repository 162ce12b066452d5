"""Which groups of a run have been handed to the rollout API.

One line a group, written once the API has acknowledged it. A process that dies in between pushes that group
again under the same key, and the API knows it. The first line names this run for all time, so that a new run
of the same name has keys of its own.
"""

import os
import uuid
from pathlib import Path

from trajectories.errors import ConfigError


class PushedLog:
    """The log of one run; its folder's lock is the trajectory store's."""

    def __init__(self, path: Path):
        self.path = path
        self.run_id = ""
        self._groups: set[str] = set()
        self._descriptor: int | None = None

    def __enter__(self) -> "PushedLog":
        """Read the log; a torn last line is cut off.

        Raises:
            ConfigError: It can't be written.
        """
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ConfigError(f"run.output_dir: cannot write {self.path}: {error.strerror}") from error
        whole, _, torn = self.path.read_bytes().rpartition(b"\n")
        if torn:
            os.ftruncate(self._descriptor, len(whole) + 1 if whole else 0)
        first, *groups = whole.decode().split("\n")
        self.run_id = first
        self._groups = set(groups)
        if not first:
            self.run_id = uuid.uuid4().hex
            self._write(self.run_id)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group_id: str) -> None:
        """Write a group down; it is on the disk once this returns.

        Raises:
            ConfigError: The disk is full or gone; what was written of the line is cut off by the next open.
        """
        self._write(group_id)
        self._groups.add(group_id)

    def _write(self, line: str) -> None:
        assert self._descriptor is not None, "use the log in a with statement"
        whole = line.encode() + b"\n"
        try:
            if os.write(self._descriptor, whole) != len(whole):
                raise OSError("the disk is full")
            os.fsync(self._descriptor)
        except OSError as error:
            raise ConfigError(f"run.output_dir: cannot write {self.path}: {error}") from error
