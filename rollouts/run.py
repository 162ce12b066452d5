"""A run from its settings: the folder is claimed, the world opened, a plan of groups rolled out."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from rich.console import Console

from backends.base import ToolBackend
from environments.base import BaseAgentEnv
from inference.session import ModelClient
from rollouts.attempt import World
from rollouts.config import SandboxConfig, Settings
from rollouts.connect import open_backend, open_model
from rollouts.progress import RunProgress
from rollouts.run_folder import RunFolder
from rollouts.runner import Runner
from rollouts.specs import GroupSpec
from rollouts.store import TrajectoryStore


@dataclass(frozen=True, slots=True)
class Run:
    """An open run."""

    folder: RunFolder
    world: World
    settings: Settings
    store: TrajectoryStore

    async def roll_out(self, plan: list[GroupSpec], console: Console) -> None:
        """Make the plan's rollouts that are not in the store yet.

        Raises:
            RunFailed: Nothing works.
        """
        specs = [spec for group in plan for spec in group.rollouts]
        done = sum(self.store.finished(spec.trajectory_id) for spec in specs)
        with RunProgress(console, self.folder.name, len(specs), done) as progress:
            await Runner(self.world, self.store, self.settings.run.limits, progress.finished).run(specs)


@asynccontextmanager
async def open_run(env: BaseAgentEnv, settings: Settings, name: str) -> AsyncIterator[Run]:
    """Open everything a run of one model needs, cheapest check first.

    Raises:
        ConfigError: Something can't be used; nothing has been rolled out yet.
    """
    async with open_training_run(env, settings, name, settings.run.max_concurrent) as run:
        run.folder.claim_model(run.world.client.model)
        yield run


@asynccontextmanager
async def open_training_run(
    env: BaseAgentEnv, settings: Settings, name: str, max_slots: int
) -> AsyncIterator[Run]:
    """Open everything a run needs whose model may change on the way.

    Args:
        env: The environment.
        settings: The run's settings.
        name: The run's name.
        max_slots: Sandboxes needed at once.

    Raises:
        ConfigError: Something can't be used; nothing has been rolled out yet.
    """
    folder = RunFolder(settings, name)
    folder.claim()
    with TrajectoryStore(folder.trajectories) as store:
        model = open_model(settings.model)
        async with open_world(env, settings.sandbox, max_slots, model, folder.config_hash) as world:
            yield Run(folder, world, settings, store)


@asynccontextmanager
async def open_world(
    env: BaseAgentEnv,
    sandbox: SandboxConfig,
    max_slots: int,
    model: AbstractAsyncContextManager[ModelClient],
    config_hash: str,
) -> AsyncIterator[World]:
    """Open what an environment's rollouts act in, the model last.

    Raises:
        ConfigError: Something can't be used.
    """
    async with open_tools(env, sandbox, max_slots) as backend, model as client:
        yield World(env, client, backend, config_hash)


@asynccontextmanager
async def open_tools(env: BaseAgentEnv, sandbox: SandboxConfig, max_slots: int) -> AsyncIterator[ToolBackend]:
    """Load the environment's items, start its sandboxes and find out which of its tools work.

    Raises:
        ConfigError: Something can't be used.
    """
    await env.setup()
    async with open_backend(sandbox, max_slots) as backend:
        await env.check_tools(backend)
        yield backend
