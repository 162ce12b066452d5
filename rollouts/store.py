"""The trajectories of a run: an append-only log that survives ``kill -9``.

A trajectory counts as kept once its line, newline included, is on the disk. A process that dies while
writing leaves at most one torn line at the end, which the next one cuts off: it was never counted. Resuming
goes by trajectory id; going by line number or prompt text pays twice for some rollouts and skips others.
"""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rollouts.specs import GroupSpec
from trajectories import record
from trajectories.errors import ConfigError
from trajectories.trajectory import Group, Trajectory


class TrajectoryStore:
    """The log of one run; one process writes it at a time.

    Later records of an id replace earlier ones: a rollout that failed for the world's reasons is made again.
    """

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None
        self._end = 0
        self._latest: dict[str, tuple[int, int]] = {}
        self._finished: set[str] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trajectory-store")

    def __enter__(self) -> "TrajectoryStore":
        """Open the log, lock it, cut a torn last line off and index the rest.

        Raises:
            ConfigError: It can't be written, another process writes it, or a line is no trajectory.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ConfigError(f"run.output_dir: cannot write {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._index()
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise ConfigError(f"run.name: another process is writing {self.path}") from error
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __len__(self) -> int:
        return len(self._latest)

    def finished(self, trajectory_id: str) -> bool:
        """Tell whether the rollout is kept and need not be made again."""
        return trajectory_id in self._finished

    async def append(self, trajectory: Trajectory) -> None:
        """Write one trajectory through to the disk; it is kept once this returns.

        Raises:
            ConfigError: The disk is full or gone; the log is as it was before.
        """
        write = asyncio.get_running_loop().run_in_executor(self._thread, self._write, trajectory)
        await asyncio.shield(write)

    def read(self, trajectory_id: str) -> Trajectory | None:
        """Return the latest record of a rollout; None where there is none."""
        if trajectory_id not in self._latest:
            return None
        start, length = self._latest[trajectory_id]
        return record.loads(os.pread(self._file, length, start))

    def group(self, spec: GroupSpec) -> Group:
        """Return the rollouts of a group that are kept so far, of as many as it asks for."""
        records = (self.read(rollout.trajectory_id) for rollout in spec.rollouts)
        kept = [record for record in records if record is not None]
        return Group(spec.group_id, spec.item_key, len(spec.rollouts), kept)

    def __iter__(self) -> Iterator[Trajectory]:
        """Yield the latest record of every rollout, in order of their first writing."""
        for trajectory_id in list(self._latest):
            trajectory = self.read(trajectory_id)
            assert trajectory is not None
            yield trajectory

    @property
    def _file(self) -> int:
        if self._descriptor is None:
            raise RuntimeError("the store is not open: use it in a with statement")
        return self._descriptor

    def _index(self) -> None:
        with open(self.path, "rb") as log:
            for number, line in enumerate(log, 1):
                if not line.endswith(b"\n"):
                    os.ftruncate(self._file, self._end)
                    break
                try:
                    self._remember(record.loads(line), len(line))
                except ConfigError as error:
                    raise ConfigError(f"{self.path}, line {number}: {error}; move the file away") from error

    def _write(self, trajectory: Trajectory) -> None:
        line = record.dumps(trajectory) + b"\n"
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(f"wrote {written} of {len(line)} bytes: the disk is full")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise ConfigError(f"run.output_dir: cannot write {self.path}: {error}") from error
        self._remember(trajectory, len(line))

    def _remember(self, trajectory: Trajectory, length: int) -> None:
        self._latest[trajectory.trajectory_id] = (self._end, length)
        self._end += length
        if trajectory.stop_reason.trainable and trajectory.error is None:
            self._finished.add(trajectory.trajectory_id)
