"""The progress bar of a run."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from trajectories.trajectory import Trajectory


class RunProgress:
    """Shows how many rollouts are done, their mean reward, and how many failed."""

    def __init__(self, console: Console, title: str, total: int, done: int):
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, status="")
        self._reward_sum = 0.0
        self._scored = 0
        self._failed = 0

    def __enter__(self) -> "RunProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def finished(self, trajectory: Trajectory) -> None:
        """Count one rollout."""
        if trajectory.reward is None:
            self._failed += 1
        else:
            self._reward_sum += trajectory.reward
            self._scored += 1
        mean = f"reward {self._reward_sum / self._scored:.3f}" if self._scored else ""
        failed = f"  failed {self._failed}" if self._failed else ""
        self._bar.update(self._task, advance=1, status=mean + failed)
