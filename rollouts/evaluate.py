"""`evaluate`: the evaluation items, with the environment's estimates and their confidence intervals."""

from rich.console import Console
from rich.table import Table

from environments.base import BaseAgentEnv
from environments.estimates import Estimate
from rollouts.config import Settings
from rollouts.held_out import held_out_plan
from rollouts.report import write_report
from rollouts.run import open_run
from rollouts.summary import Summary


async def evaluate(env_class: type[BaseAgentEnv], settings: Settings, console: Console) -> None:
    """Roll out up to ``run.groups`` evaluation items and report on them."""
    env = env_class(settings.env)
    name = f"{settings.run.name or env.name}-evaluation"
    async with open_run(env, settings, name) as run:
        plan = held_out_plan(env, name, settings.run.groups)
        await run.roll_out(plan, console)
        groups = [run.store.group(spec) for spec in plan]
        estimates = await env.evaluate(groups)
        report = run.folder.path / "evaluation.json"
        write_report(report, estimates)
        summary = Summary()
        for group in groups:
            summary.add(group)
        console.print(summary.table(f"evaluate {name}"))
        console.print(_table(estimates))
        console.print(f"Report: {report}")


def _table(estimates: dict[str, Estimate]) -> Table:
    table = Table("estimate", "mean", "95 % interval", "items")
    for name, estimate in estimates.items():
        interval = f"{estimate.low:.3f} to {estimate.high:.3f}"
        table.add_row(name, f"{estimate.mean:.3f}", interval, str(estimate.items))
    return table
