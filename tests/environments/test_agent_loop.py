"""The agent loop: every way a conversation ends is a stop reason, and the transcript keeps all until then."""

import asyncio

import pytest

from environments.agent_loop import Limits, Transcript, agent_loop
from environments.gate import Gate
from inference.scripted import ScriptedClient
from tests.toolsets.test_toolbox import box
from trajectories.errors import ContextOverflow, ModelError
from trajectories.messages import Message, ParseError, ToolCall
from trajectories.trajectory import StopReason
from trajectories.turn import SamplingParams, Turn

ECHO = Message.assistant(tool_calls=[ToolCall("c0", "echo", {"text": "hi"})])
DONE = Message.assistant("done")


async def converse(script, *, max_turns=4, turn_timeout_s=30.0, deadline_s=30.0, transcript=None, gate=None):
    client = ScriptedClient(script)
    transcript = transcript or Transcript([Message.user("go")])
    async with client.session("t", list(transcript.messages), []) as session:
        limits = Limits(max_turns, turn_timeout_s, deadline_s)
        await agent_loop(session, transcript, box(), limits, SamplingParams(seed=7), gate or Gate())
    return transcript, client


async def test_an_answer_without_calls_completes():
    transcript, client = await converse([ECHO, DONE])
    assert transcript.stop_reason is StopReason.COMPLETED
    assert [m.role for m in transcript.messages] == ["user", "assistant", "tool", "assistant"]
    assert transcript.answer == "done"
    assert [call.sampling.seed for call in client.calls] == [7, 8]
    (execution,) = transcript.turns[0].tool_executions
    assert (execution.name, execution.success) == ("echo", True)


async def test_a_model_that_loops_for_ever_stops_at_max_turns_with_its_last_calls_answered():
    transcript, _ = await converse(lambda messages, tools: ECHO, max_turns=3)
    assert transcript.stop_reason is StopReason.MAX_TURNS
    assert len(transcript.turns) == 3
    assert transcript.messages[-1].role == "tool"


async def test_a_cut_turn_stops_and_its_calls_are_not_run():
    transcript, _ = await converse([Turn(ECHO, "length", SamplingParams())])
    assert transcript.stop_reason is StopReason.MAX_TOKENS
    assert transcript.messages[-1] == ECHO


async def test_a_malformed_call_goes_back_in_the_tool_role_and_the_model_may_mend_it():
    broken = Message("assistant", errors=[ParseError("invalid_json", "{", (0, 1), "write JSON")])
    transcript, _ = await converse([broken, ECHO, DONE])
    assert transcript.stop_reason is StopReason.COMPLETED
    assert transcript.messages[2].role == "tool"
    assert "write JSON" in transcript.messages[2].content


async def test_a_full_context_is_the_models_own_stop():
    transcript, _ = await converse([ECHO, ContextOverflow("2049 of 2048 tokens")])
    assert transcript.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert len(transcript.turns) == 1


async def test_the_deadline_is_the_models_own_stop():
    async def slow(messages, tools):
        await asyncio.sleep(0.05)
        return ECHO

    transcript, _ = await converse(slow, max_turns=1000, deadline_s=2)
    assert transcript.stop_reason is StopReason.DEADLINE
    assert transcript.turns


async def test_time_at_a_shut_gate_counts_toward_no_limit():
    gate = Gate()
    gate.shut(True)
    running = asyncio.create_task(converse([ECHO, DONE], turn_timeout_s=1.5, deadline_s=1.5, gate=gate))
    await asyncio.sleep(2)
    gate.shut(False)
    transcript, _ = await running
    assert transcript.stop_reason is StopReason.COMPLETED


async def test_the_clock_of_a_rollout_goes_on_behind_the_gate():
    async def forever(messages, tools):
        await asyncio.sleep(0.01)
        return ECHO

    gate = Gate()
    gate.shut(True)
    asyncio.get_running_loop().call_later(0.2, gate.shut, False)
    transcript, _ = await converse(forever, max_turns=10_000, deadline_s=1.5, gate=gate)
    assert transcript.stop_reason is StopReason.DEADLINE
    assert transcript.turns


async def test_a_server_that_does_not_answer_is_the_worlds_failure():
    async def silent(messages, tools):
        await asyncio.Event().wait()

    with pytest.raises(ModelError, match=r"turn_timeout_s = 0\.05"):
        await converse(silent, turn_timeout_s=0.05)


async def test_a_failing_model_leaves_the_turns_before_in_the_transcript():
    transcript = Transcript([Message.user("go")])
    with pytest.raises(ModelError):
        await converse([ECHO, ModelError("502")], transcript=transcript)
    assert len(transcript.turns) == 1
    assert transcript.messages[-1].content == "hi"
