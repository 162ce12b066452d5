"""Rewards of parts: weighted, recorded by name, and failing by name rather than counting as 0."""

import asyncio
import threading
import time

import pytest

from backends.fake import FakeBackend
from environments.agent_loop import Transcript
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from environments.reward_parts import Part, RewardParts, TurnPart
from environments.tool_use import calls_succeed, calls_well_formed, tool_use
from inference.scripted import ScriptedClient
from rollouts.attempt import World, attempt_rollout
from rollouts.specs import RolloutSpec
from trajectories.errors import RewardError, SandboxDied
from trajectories.messages import Message, ParseError
from trajectories.turn import SamplingParams, ToolExecution, Turn


def gives(value):
    async def score(item, result, ctx):
        return value

    return score


def raises(error):
    async def score(item, result, ctx):
        raise error

    return score


async def forever(item, result, ctx):
    await asyncio.Event().wait()


def turn(*successes, errors=()):
    executions = [ToolExecution("c", "t", "k", success, 0.1) for success in successes]
    message = Message("assistant", errors=list(errors))
    return Turn(message, "stop", SamplingParams(), tool_executions=executions)


async def reward_of(*parts, turns=()):
    return await RewardParts(*parts)({}, Transcript([t.message for t in turns], list(turns)), None)


async def test_parts_are_weighted_and_what_weighs_nothing_is_only_measured():
    reward = await reward_of(
        Part("right", gives(1.0)), Part("short", gives(0.5), weight=-0.5), Part("words", gives(7), weight=0)
    )
    assert reward.value == 0.75
    assert reward.parts == {"right": 1.0, "short": -0.25}
    assert sum(reward.parts.values()) == reward.value
    assert reward.metrics["words"] == 7.0


async def test_plain_functions_are_scorers_too_and_do_not_hold_up_the_loop():
    begun, may_end = threading.Event(), threading.Event()

    def slow(item, result, ctx):
        begun.set()
        return may_end.wait(60)

    async def let_it_end():
        while not begun.is_set():  # noqa: ASYNC110 - an event of threads wakes no task
            await asyncio.sleep(0.01)
        may_end.set()

    reward, _ = await asyncio.gather(reward_of(Part("slow", slow)), let_it_end())
    assert reward.value == 1.0


async def test_a_scorer_that_is_an_object_with_an_async_call_is_awaited():
    class Scorer:
        async def __call__(self, item, result, ctx):
            return 0.25

    assert (await reward_of(Part("object", Scorer()))).value == 0.25


@pytest.mark.parametrize(
    "part, message",
    [
        (Part("tests", raises(KeyError("x"))), "part 'tests': KeyError: 'x'"),
        (Part("tests", raises(TimeoutError("slow disk"))), "part 'tests': TimeoutError: slow disk"),
        (Part("tests", raises(RewardError("no judge"))), "part 'tests': no judge"),
        (Part("tests", gives("much")), "part 'tests': ValueError"),
        (Part("tests", forever, timeout_s=0.05), "part 'tests' took longer than 0.05 s"),
        (Part("tests", lambda *_: time.sleep(0.5), timeout_s=0.05), "part 'tests' took longer than 0.05 s"),
        (TurnPart("calls", lambda item, turn: 1 / 0), "part 'calls', turn 0: ZeroDivisionError"),
    ],
)
async def test_a_part_that_fails_fails_the_reward_by_its_name(part, message):
    with pytest.raises(RewardError, match=message):
        await reward_of(Part("fine", gives(1.0)), part, turns=[turn()])


async def test_a_sandbox_that_fails_is_no_failure_of_the_part():
    with pytest.raises(SandboxDied):
        await reward_of(Part("tests", raises(SandboxDied("gone"))))


async def test_what_can_not_be_mended_by_retrying_stays_so():
    with pytest.raises(RewardError) as error:
        await reward_of(Part("tests", raises(RewardError("no such field", retryable=False))))
    assert not error.value.retryable


def test_two_parts_of_one_name_are_refused():
    with pytest.raises(ValueError, match="one name"):
        RewardParts(Part("a", gives(1.0)), TurnPart("a", calls_succeed))


async def test_turns_are_scored_one_by_one_beside_the_value():
    turns = [turn(True, False), turn(), turn(True, errors=[ParseError("invalid_json", "{", (0, 1), "no")])]
    reward = await reward_of(
        Part("done", gives(1.0)),
        TurnPart("calls", calls_succeed),
        TurnPart("form", calls_well_formed, weight=0.5),
        turns=turns,
    )
    assert reward.turn_rewards == [1.0, 0.5, 1.0]
    assert reward.value == 1.0


def test_the_use_of_tools_is_counted():
    flagged = ParseError("unknown_tool", "x", (0, 1), "no")
    broken = ParseError("invalid_json", "{", (0, 1), "no")
    turns = [turn(True, False), turn(False, errors=[flagged, broken])]
    counts = tool_use(Transcript([t.message for t in turns], turns))
    assert counts == {"turns": 2, "tool_calls": 3, "failed_tool_calls": 2, "malformed_tool_calls": 1}


async def test_turn_rewards_and_parts_land_in_the_trajectory():
    class Env(BaseAgentEnv):
        name = "parts"
        reward = RewardParts(Part("said", gives(0.5)), TurnPart("form", calls_well_formed))

        def format_prompt(self, item):
            return "go"

        async def compute_reward(self, item, result, ctx):
            return await self.reward(item, result, ctx)

    spec = RolloutSpec("r/i/0", "r/i", {}, "i", 0, 1)
    world = World(Env(EnvConfig()), ScriptedClient([Message.assistant("done")]), FakeBackend(), "hash")
    trajectory = await attempt_rollout(spec, 1, world)
    assert (trajectory.reward, trajectory.reward_parts, trajectory.turn_rewards) == (
        0.5,
        {"said": 0.5},
        [1.0],
    )
    assert trajectory.metrics["turns"] == 1
