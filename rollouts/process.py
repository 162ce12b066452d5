"""`process`: a bounded number of groups, kept, exported as training data, summed up."""

import os
from collections.abc import Iterable
from pathlib import Path

import jsonlines
import msgspec
from rich.console import Console

from environments.base import BaseAgentEnv
from rollouts.config import Settings
from rollouts.run import open_run
from rollouts.show import readable
from rollouts.specs import plan_groups
from rollouts.summary import Summary
from trajectories.sharegpt import to_sharegpt
from trajectories.trajectory import Group, Trajectory


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
        wanted = (g for g in run.groups(plan) if g.complete or not settings.run.require_full_groups)
        export_sharegpt(wanted, run.folder.sharegpt)
        console.print(Summary.of(run.groups(plan)).table(f"process {name}"))
        console.print(f"ShareGPT rows: {run.folder.sharegpt}")
        trajectories = (t for group in run.groups(plan) for t in group.trajectories)
        console.print(readable(max(trajectories, key=_worth_showing)))


def export_sharegpt(groups: Iterable[Group], path: Path) -> None:
    """Write the scored trajectories as ShareGPT rows; the file appears whole or not at all."""
    unfinished = path.with_suffix(".partial")
    with open(unfinished, "wb") as file:
        writer = jsonlines.Writer(file, dumps=msgspec.json.encode)  # pyright: ignore[reportCallIssue]
        writer.write_all(
            to_sharegpt(t) for group in groups for t in group.trajectories if t.reward is not None
        )
    os.replace(unfinished, path)


def _worth_showing(trajectory: Trajectory) -> tuple[float, int]:
    """Rank by reward, then by how much was done."""
    reward = float("-inf") if trajectory.reward is None else trajectory.reward
    return reward, len(trajectory.turns)
