"""The runner: failures of the world are data and retried, never scored 0; nothing finished is redone."""

import asyncio
from collections import Counter

import pytest

from backends import FakeBackend
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from environments.reward import Reward
from inference.scripted import ScriptedClient
from rollouts import runner as runner_module
from rollouts.attempt import World
from rollouts.runner import RunFailed, RunLimits, Runner
from rollouts.specs import plan_groups
from rollouts.store import TrajectoryStore
from trajectories.errors import AlignmentError, ModelError, SandboxUnavailable
from trajectories.messages import Message, ToolCall
from trajectories.trajectory import StopReason

DONE = Message.assistant("done")
NO_SANDBOXES = FakeBackend(failure=SandboxUnavailable("no sandboxes here"))


class Saying(BaseAgentEnv):
    name = "saying"

    def format_prompt(self, item):
        return item["prompt"]

    async def compute_reward(self, item, result, ctx):
        return Reward(float(result.answer == "done"), metrics={"length": len(result.answer)})


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(runner_module, "LONGEST_WAIT_S", 0.0)


async def specs(count=8, group_size=1):
    numbers = iter(range(count))

    async def next_item():
        return {"id": str(next(numbers)), "prompt": "go"}

    return [s for g in await plan_groups("run", count, group_size, 0, next_item) for s in g.rollouts]


async def run(
    store_path, script, *, count=8, env_class=Saying, max_concurrent=4, max_attempts=3, failure_limit=4, **env
):
    world = World(env_class(EnvConfig(**env)), ScriptedClient(script), NO_SANDBOXES, "hash")
    finished = []
    with TrajectoryStore(store_path) as store:
        limits = RunLimits(max_concurrent, max_attempts, failure_limit)
        try:
            await Runner(world, store, limits, finished.append).run(await specs(count))
        finally:
            kept = list(store)
    return kept, finished


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.jsonl"


async def test_every_rollout_is_scored_and_kept(path):
    kept, finished = await run(path, [DONE])
    assert sorted(t.trajectory_id for t in kept) == [f"run/{i}/0" for i in range(8)]
    assert {(t.reward, t.stop_reason, t.attempt) for t in kept} == {(1.0, StopReason.COMPLETED, 1)}
    assert len(finished) == 8


async def test_a_failure_of_the_world_is_retried_whole_and_the_attempt_recorded(path):
    calls = Counter()

    def flaky(messages, tools):
        calls["all"] += 1
        return ModelError("502") if calls["all"] % 2 else DONE

    kept, _ = await run(path, flaky, max_concurrent=1)
    assert {(t.reward, t.attempt, t.error) for t in kept} == {(1.0, 2, None)}


async def test_a_failure_that_stays_is_recorded_with_its_boundary_and_no_reward(path):
    def half_down(messages, tools):
        return DONE

    class HalfDown(Saying):
        async def compute_reward(self, item, result, ctx):
            if int(item["id"]) % 2:
                raise KeyError("answer")
            return 1.0

    kept, _ = await run(path, half_down, env_class=HalfDown)
    failed = [t for t in kept if t.error]
    assert len(failed) == 4
    for trajectory in failed:
        assert trajectory.reward is None
        assert trajectory.stop_reason is StopReason.ERROR
        assert trajectory.error.boundary == "reward"
        assert "KeyError" in trajectory.error.message
        assert trajectory.attempt == 3
        assert trajectory.messages[-1] == DONE


async def test_what_cannot_be_mended_by_retrying_is_not_retried(path):
    tried = Counter()

    def refuse(messages, tools):
        tried["all"] += 1
        return ModelError("401: bad key", retryable=False)

    with pytest.raises(RunFailed, match="401: bad key"):
        await run(path, refuse, max_concurrent=1, failure_limit=2)
    assert tried["all"] == 2


async def test_a_run_in_which_nothing_works_stops_loudly_and_keeps_what_it_saw(path):
    with pytest.raises(
        RunFailed, match=r"the first 4 rollouts all failed, the last one at the model: ModelError: down"
    ):
        await run(path, lambda messages, tools: ModelError("down"), count=100, max_attempts=1)
    with TrajectoryStore(path) as store:
        assert 4 <= len(store) < 12


async def test_a_reward_that_is_not_a_number_is_a_failure_not_a_reward(path):
    class NaN(Saying):
        async def compute_reward(self, item, result, ctx):
            return float("nan")

    with pytest.raises(RunFailed, match="not finite"):
        await run(path, [DONE], env_class=NaN)


async def test_a_sandbox_that_cannot_start_is_the_worlds_failure(path):
    call = Message.assistant(tool_calls=[ToolCall("c", "terminal", {"command": "ls"})])
    with pytest.raises(RunFailed, match="at the sandbox: SandboxUnavailable"):
        await run(path, [call, DONE], toolsets=["terminal"])


async def test_a_bug_of_ours_stops_the_run(path):
    def buggy(messages, tools):
        return AlignmentError("3 ids, 2 logprobs")

    with pytest.raises(AlignmentError):
        await run(path, buggy)


async def test_finished_rollouts_are_not_made_again_and_failed_ones_are(path):
    down = {"run/1/0", "run/2/0"}

    class Client(ScriptedClient):
        def __init__(self):
            super().__init__([DONE])
            self.opened = []

        def session(self, trajectory_id, messages, tools):
            self.opened.append(trajectory_id)
            if trajectory_id in down:
                raise ModelError("down")
            return super().session(trajectory_id, messages, tools)

    client = Client()
    world = World(Saying(EnvConfig()), client, NO_SANDBOXES, "hash")
    limits = RunLimits(1, 1, 4)
    with TrajectoryStore(path) as store:
        await Runner(world, store, limits).run(await specs())
    down.clear()
    client.opened.clear()
    with TrajectoryStore(path) as store:
        await Runner(world, store, limits).run(await specs())
        assert [t.reward for t in store] == [1.0] * 8
    assert client.opened == ["run/1/0", "run/2/0"]


async def test_no_more_rollouts_are_in_flight_than_allowed(path):
    flying, most, as_many = 0, 0, asyncio.Event()

    async def counting(messages, tools):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        if most == 5:
            as_many.set()
        await as_many.wait()
        await asyncio.sleep(0.01)
        flying -= 1
        return DONE

    await run(path, counting, count=20, max_concurrent=5)
    assert most == 5


async def test_a_cancelled_run_keeps_what_was_finished_and_nothing_else(path):
    answered, waiting = 0, asyncio.Event()

    async def three_then_silence(messages, tools):
        nonlocal answered
        if answered == 3:
            waiting.set()
            await asyncio.Event().wait()
        answered += 1
        return DONE

    task = asyncio.create_task(run(path, three_then_silence, max_concurrent=1))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with TrajectoryStore(path) as store:
        assert [t.stop_reason for t in store] == [StopReason.COMPLETED] * 3
