"""What `serve` shows while it runs: a live line on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rollouts.serving import Serving
from trajectories.trajectory import Trajectory

LINE_EVERY_S = 30.0
"""Between lines where there is no terminal."""


class ServeProgress:
    """Shows groups, rewards, room and policy version."""

    def __init__(self, console: Console, title: str):
        self._console = console
        self._title = title
        self._rollouts = 0
        self._failed = 0
        self._last_line = 0.0
        self._state = ""
        self._live = Progress(
            SpinnerColumn(),
            TextColumn(title),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._live.add_task(title, total=None, state="waiting for the rollout API")

    def __enter__(self) -> "ServeProgress":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._state and not self._console.is_terminal:
            self._print()

    def finished(self, trajectory: Trajectory) -> None:
        """Count one rollout."""
        self._rollouts += 1
        self._failed += trajectory.error is not None

    def show(self, serving: Serving, evaluation: str) -> None:
        """Show how it stands."""
        self._state = self._stands(serving, evaluation)
        self._live.update(self._task, state=self._state)
        if not self._console.is_terminal and time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._print()

    def _print(self) -> None:
        self._console.print(f"{self._title}: {self._state}", soft_wrap=True, highlight=False)

    def _stands(self, serving: Serving, evaluation: str) -> str:
        counts, orders = serving.counts, serving.orders
        rewards = counts.recent_rewards
        parts = [
            f"{counts.pushed} groups pushed",
            f"{counts.in_flight} in flight, room for {max(orders.room, 0)}",
            f"{self._rollouts} rollouts",
            f"policy {orders.policy_version}{' (updating)' if orders.updating else ''}",
        ]
        parts += [f"{self._failed} failed"] if self._failed else []
        parts += [f"{counts.withheld} groups withheld"] if counts.withheld else []
        parts += [f"reward {sum(rewards) / len(rewards):.3f} (last {len(rewards)} groups)"] if rewards else []
        parts += [f"evaluation {evaluation}"] if evaluation else []
        return ", ".join(parts)
