"""Rollouts for a trainer that asks for them one at a time, by the key of a task item.

Each is retried, recorded and on the disk before the trainer sees it, as in any run; only what is to be rolled
out, and how it is sampled, is the trainer's to say.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from environments.base import BaseAgentEnv
from environments.config import SamplingConfig
from environments.items import item_key
from inference.session import ModelClient
from rollouts.attempt import World
from rollouts.config import RunConfig, SandboxConfig
from rollouts.connect import started
from rollouts.run import open_world
from rollouts.runner import Runner
from rollouts.specs import rollout_spec
from rollouts.store import TrajectoryStore
from trajectories.errors import ConfigError
from trajectories.trajectory import Trajectory


class RolloutMaker:
    """Makes rollouts of one environment; see `open_rollouts`."""

    def __init__(self, world: World, store: TrajectoryStore, run: RunConfig):
        self.env = world.env
        self._runner = Runner(world, store, run.limits)
        self._free = asyncio.Semaphore(run.max_concurrent)
        self._items = {item_key(item): item for item in (*self.env.eval_items, *self.env.items)}

    async def make(
        self, group: str, key: str, repetition: int, sampling: SamplingConfig | None = None
    ) -> Trajectory:
        """Make one rollout and keep it.

        Args:
            group: The trainer's name for the group; with the key it names the group in the record.
            key: Of the task item.
            repetition: Index within the group, from 0.
            sampling: How it is sampled; by default as the environment is set.

        Raises:
            ConfigError: There is no such item, or the record can't be written.
            RunFailed: Nothing works.
        """
        if key not in self._items:
            raise ConfigError(f"{self.env.name} has no item {key!r}")
        spec = rollout_spec(f"{group}/{key}", self._items[key], repetition, self.env.config.seed, sampling)
        async with self._free:
            return await self._runner.make(spec)

    async def make_all(
        self, wanted: Iterable[tuple[str, str, int]], sampling: SamplingConfig
    ) -> list[Trajectory]:
        """Make rollouts named by group, key and repetition, at once, and return them in order; see `make`."""
        try:
            async with asyncio.TaskGroup() as making:
                tasks = [making.create_task(self.make(*name, sampling)) for name in wanted]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]


@asynccontextmanager
async def open_rollouts(
    env: BaseAgentEnv, client: ModelClient, sandbox: SandboxConfig, run: RunConfig
) -> AsyncIterator[RolloutMaker]:
    """Load the items, open sandboxes and model, and keep trajectories in the run's folder.

    Args:
        env: Not set up yet.
        client: Not started yet; closed on exit.
        sandbox: Where tools run.
        run: Its name and folder, how many rollouts may be in flight, and how failures are treated.

    Raises:
        ConfigError: Something can't be used.
    """
    folder = run.output_dir / (run.name or env.name)
    config_hash = hashlib.sha256(env.config.model_dump_json().encode()).hexdigest()[:12]
    with TrajectoryStore(folder / "trajectories.jsonl") as store:
        async with open_world(env, sandbox, run.max_concurrent, started(client), config_hash) as world:
            yield RolloutMaker(world, store, run)
