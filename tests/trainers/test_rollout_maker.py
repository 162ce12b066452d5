"""Rollouts on a trainer's demand: named and sampled as it says, bounded, and kept."""

import asyncio

import pytest

from environments.config import SamplingConfig
from inference.scripted import ScriptedClient
from rollouts.config import RunConfig, SandboxConfig
from rollouts.store import TrajectoryStore
from tests.trainers.fates import Fates, turn
from trainers.rollout_maker import open_rollouts
from trajectories.errors import ConfigError
from trajectories.messages import Message

SAMPLING = SamplingConfig(temperature=0.5, max_tokens=7)


async def test_rollouts_come_back_in_order_bounded_sampled_as_wanted_and_on_the_disk(tmp_path):
    running, most, two = 0, 0, asyncio.Event()

    async def reply(messages, tools):
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 2:
            two.set()
        await two.wait()
        await asyncio.sleep(0.01)
        running -= 1
        return turn(Message.assistant("good"), [1], [2])

    client = ScriptedClient(reply)
    run = RunConfig(output_dir=tmp_path, name="run", max_concurrent=2)
    wanted = [("g", key, n) for key in ("a", "b") for n in range(3)]
    async with open_rollouts(Fates(), client, SandboxConfig(), run) as rollouts:
        made = await rollouts.make_all(wanted, SAMPLING)
        with pytest.raises(ConfigError, match="no item 'nowhere'"):
            await rollouts.make_all([("g", "nowhere", 0)], SAMPLING)
    assert [each.trajectory_id for each in made] == [f"{group}/{key}/{n}" for group, key, n in wanted]
    assert most == 2
    assert {(call.sampling.temperature, call.sampling.max_tokens) for call in client.calls} == {(0.5, 7)}
    assert len({call.sampling.seed for call in client.calls}) == len(wanted)
    with TrajectoryStore(tmp_path / "run" / "trajectories.jsonl") as store:
        assert {each.trajectory_id for each in store} == {each.trajectory_id for each in made}
