"""`serve`: roll out for as long as a trainer wants, into its rollout API."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from rich.console import Console

from environments.base import BaseAgentEnv
from rollouts.api.atropos_sink import AtroposSink
from rollouts.api.client import ApiError, RolloutClient
from rollouts.api.server import running_server
from rollouts.api.settings import read_token
from rollouts.api.sinks import NativeSink, Sink
from rollouts.config import Settings
from rollouts.evaluating import EvaluationSchedule, evaluation_slots
from rollouts.pushed_log import PushedLog
from rollouts.run import open_training_run
from rollouts.runner import Runner
from rollouts.serve_progress import ServeProgress
from rollouts.serving import ServeLimits, Serving
from rollouts.specs import endless_plan
from rollouts.store import TrajectoryStore

LEAVE_S = 5.0
"""How long a server may take to hear that the environment goes."""


async def serve(env_class: type[BaseAgentEnv], settings: Settings, console: Console) -> None:
    """Feed the rollout API until interrupted, or ``serve.groups`` groups are done."""
    env = env_class(settings.env)
    name = f"{settings.run.name or env.name}-serve"
    wanted, most = settings.serve, settings.run.max_concurrent
    async with AsyncExitStack() as stack:
        slots = most + (evaluation_slots(most) if wanted.evaluate_every else 0)
        run = await stack.enter_async_context(open_training_run(env, settings, name, slots))
        pushed = stack.enter_context(PushedLog(run.folder.pushed))
        sink = await stack.enter_async_context(_open_sink(env, settings, pushed.run_id, console))
        evaluations = None
        if wanted.evaluate_every:
            store = stack.enter_context(TrajectoryStore(run.folder.path / "evaluation.jsonl"))
            evaluations = EvaluationSchedule(env, run, store, wanted.evaluate_every, wanted.evaluation_items)
            stack.push_async_callback(evaluations.stop)
        progress = stack.enter_context(ServeProgress(console, name))

        def changed(serving: Serving) -> None:
            if evaluations is not None:
                evaluations.policy_is(serving.orders.policy_version)
            progress.show(serving, evaluations.latest if evaluations else "")

        limits = ServeLimits(most, wanted.groups, settings.run.require_full_groups, wanted.poll_s)
        runner = Runner(run.world, run.store, settings.run.limits, progress.finished)
        serving = Serving(env.name, runner, run.store, pushed, sink, run.world.gate, limits, changed)
        await serving.run(endless_plan(name, env.config.group_size, env.config.seed, env.get_next_item))
        if evaluations is not None:
            await evaluations.finish()
            changed(serving)


@asynccontextmanager
async def _open_sink(
    env: BaseAgentEnv, settings: Settings, run_id: str, console: Console
) -> AsyncIterator[Sink]:
    """Connect to the configured rollout API, or to one of our own making; leave it in the end."""
    wanted, size = settings.serve, env.config.group_size
    async with AsyncExitStack() as stack:
        url = wanted.url
        token_file = wanted.token_file
        if url is None:
            url = await stack.enter_async_context(running_server(wanted.server))
            token_file = wanted.server.token_file
            console.print(
                f"serve.url is not set: rollout API started on {url}, queue in {wanted.server.shown_store}",
                soft_wrap=True,
            )
        if wanted.wire == "atropos":
            atropos = AtroposSink(
                url, env.name, weight=wanted.weight, min_allocation=wanted.min_allocation, group_size=size
            )
            sink: Sink = await stack.enter_async_context(atropos)
        else:
            token = read_token(token_file) if token_file else None
            client = await stack.enter_async_context(RolloutClient(url, token, give_up_after_s=float("inf")))
            sink = NativeSink(
                client,
                env.name,
                run_id,
                weight=wanted.weight,
                min_allocation=wanted.min_allocation,
                group_size=size,
            )
        try:
            yield sink
        finally:
            await _leave(sink)


async def _leave(sink: Sink) -> None:
    try:
        await asyncio.wait_for(sink.leave(), LEAVE_S)
    except (TimeoutError, ApiError, aiohttp.ClientError) as error:
        logging.getLogger(__name__).info(
            "the rollout API could not be told that this environment goes: %s", error
        )
