"""Evaluations beside training: one at a time, after every so many versions; their mistakes are not silent."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from backends import FakeBackend
from environments.config import EnvConfig
from inference.scripted import ScriptedClient
from rollouts.attempt import World
from rollouts.config import RunConfig
from rollouts.evaluating import EvaluationSchedule
from rollouts.run import Run
from rollouts.store import TrajectoryStore
from tests.rollouts.api.small_run import Numbers, a_turn


@pytest.fixture
def opened(tmp_path):
    """A schedule after every second version, and what holds its model's answers back."""
    may_answer = asyncio.Event()

    async def reply(messages, tools):
        await may_answer.wait()
        return a_turn()

    env = Numbers(EnvConfig(group_size=2))
    env.eval_items = [{"id": str(n), "prompt": "go"} for n in range(3)]
    world = World(env, ScriptedClient(reply), FakeBackend(), "hash")
    folder: Any = SimpleNamespace(name="run", path=tmp_path)
    settings: Any = SimpleNamespace(run=RunConfig())
    with TrajectoryStore(tmp_path / "evaluation.jsonl") as store:
        schedule = EvaluationSchedule(env, Run(folder, world, settings, store), store, 2, 2)
        yield schedule, env, may_answer


async def test_one_runs_at_a_time_and_the_next_when_enough_versions_have_come(opened, tmp_path):
    schedule, _, may_answer = opened
    for version in (0, 1, 2, 3):
        schedule.policy_is(version)
    may_answer.set()
    await schedule.finish()
    assert schedule.latest.startswith("version 0: reward 0.5")
    schedule.policy_is(1)
    await schedule.finish()
    schedule.policy_is(5)
    await schedule.finish()
    reports = {path.name: json.loads(path.read_bytes()) for path in tmp_path.glob("evaluation-*.json")}
    assert set(reports) == {"evaluation-0.json", "evaluation-5.json"}
    assert all(report["reward"]["mean"] == 0.5 for report in reports.values())


async def test_a_mistake_in_an_evaluation_is_raised_when_the_policy_is_looked_at_next(opened):
    schedule, env, may_answer = opened

    async def evaluate(groups):
        raise KeyError("no such metric")

    env.evaluate = evaluate
    may_answer.set()
    schedule.policy_is(0)
    await asyncio.wait([schedule._running])
    with pytest.raises(KeyError, match="no such metric"):
        schedule.policy_is(1)
