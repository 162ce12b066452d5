"""`process`: a bounded number of groups, kept, exported as training data, summed up."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonlines
from rich.console import Console

from environments.base import BaseAgentEnv
from rollouts.config import Settings
from rollouts.run import open_run
from rollouts.show import readable
from rollouts.specs import plan_groups
from rollouts.summary import Summary
from trajectories import lossless_json
from trajectories.sharegpt import to_sharegpt
from trajectories.trajectory import Trajectory


async def process(env_class: type[BaseAgentEnv], settings: Settings, console: Console) -> None:
    """Roll out the configured number of groups and export them.

    A run that was interrupted goes on where it stopped; one that is complete is only exported again.
    """
    env = env_class(settings.env)
    name = settings.run.name or env.name
    async with open_run(env, settings, name) as run:
        plan = await plan_groups(
            name, settings.run.groups, settings.env.group_size, settings.env.seed, env.get_next_item
        )
        await run.roll_out(plan, console)
        summary = Summary()
        best: Trajectory | None = None
        with _sharegpt_file(run.folder.sharegpt) as rows:
            for group in map(run.store.group, plan):
                summary.add(group)
                candidates = [best, *group.trajectories] if best else group.trajectories
                best = max(candidates, key=_worth_showing, default=None)
                if group.complete or not settings.run.require_full_groups:
                    rows.write_all(to_sharegpt(t) for t in group.trajectories if t.reward is not None)
        console.print(summary.table(f"process {name}"))
        console.print(f"ShareGPT rows: {run.folder.sharegpt}")
        if best:
            console.print(readable(best))


@contextmanager
def _sharegpt_file(path: Path) -> Iterator[jsonlines.Writer]:
    """Open a file of rows that appears whole or not at all."""
    unfinished = path.with_suffix(".partial")
    with open(unfinished, "wb") as file:
        yield jsonlines.Writer(file, dumps=lossless_json.encode)  # pyright: ignore[reportCallIssue]
    os.replace(unfinished, path)


def _worth_showing(trajectory: Trajectory) -> tuple[float, int]:
    """Rank by reward, then by how much was done."""
    reward = float("-inf") if trajectory.reward is None else trajectory.reward
    return reward, len(trajectory.turns)
