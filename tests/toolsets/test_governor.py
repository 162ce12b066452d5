"""Budgets and refusals: what is spent is spent once, what is refused is told, counted and stored."""

import asyncio
import json
from dataclasses import replace

import pytest

from environments.agent_loop import Limits, Transcript, agent_loop
from environments.gate import Gate
from inference.scripted import ScriptedClient
from rollouts.summary import Summary
from tests.builders import trajectory_of
from tests.toolsets.test_toolbox import SETTINGS, answers, box, broken, calling, echo, hang, huge
from toolsets import toolbox as toolbox_module
from toolsets.policy import Policy
from toolsets.terminal import terminal
from toolsets.tool import ToolCallContext, ToolResult, tool
from toolsets.toolbox import Toolbox
from trajectories.messages import Message, ToolCall
from trajectories.record import dumps, loads
from trajectories.trajectory import Group, StopReason
from trajectories.turn import SamplingParams, Turn


def policy(**settings) -> Policy:
    return Policy.model_validate(settings)


def echoes(count: int) -> Message:
    return calling(*(ToolCall(f"c{i}", "echo", {"text": str(i), "delay_s": 0.01}) for i in range(count)))


def rules(given) -> list[str | None]:
    return [answer.execution.refused_by for answer in given]


async def test_calls_side_by_side_do_not_spend_a_budget_twice():
    given = await answers(echoes(50), policy=policy(budget={"calls": 10}))
    assert rules(given).count(None) == 10
    assert rules(given).count("budget.calls") == 40


async def test_a_tools_own_budget_leaves_the_others_alone():
    toolbox = box(policy=policy(tools={"echo": {"calls": 1}}))
    given = await toolbox.answer(echoes(2), 0)
    assert rules(given) == [None, "tools.echo.calls"]
    assert json.loads(given[1].message.content) == {
        "error": "refused: echo has had its 1 calls; use other tools or answer"
    }
    assert not toolbox.governor.exhausted


async def test_a_tool_with_no_calls_may_not_be_used():
    (given,) = await answers(echoes(1), policy=policy(tools={"echo": {"calls": 0}}))
    assert "echo may not be used" in given.message.content


async def test_the_time_of_a_tool_is_bounded_and_counted(monkeypatch):
    monkeypatch.setattr(toolbox_module, "GRACE_S", 0.0)
    toolbox = box(policy=policy(tools={"hang": {"timeout_s": 0.05, "seconds": 0.04}}))
    (first,) = await toolbox.answer(calling(ToolCall("a", "hang", {})), 0)
    assert "did not finish within 0.04 s" in first.message.content
    (second,) = await toolbox.answer(calling(ToolCall("a", "hang", {})), 1)
    assert second.execution.refused_by == "tools.hang.seconds"


async def test_tool_turns_end_and_the_model_is_told_to_answer():
    toolbox = box(policy=policy(max_tool_turns=1))
    assert rules(await toolbox.answer(echoes(3), 0)) == [None, None, None]
    (given,) = await toolbox.answer(echoes(1), 1)
    assert given.execution.refused_by == "max_tool_turns"
    assert "answer without them" in given.message.content


async def test_tokens_and_money_are_counted_over_turns_and_tools():
    @tool(runs_in="host")
    async def paid(context: ToolCallContext) -> ToolResult:
        """Cost money."""
        return ToolResult("", cost_usd=0.25)

    limits = policy(budget={"cost_usd": 1.0, "prices": {"prompt": 1000.0, "sampled": 4000.0}})
    toolbox = Toolbox([paid], **SETTINGS, policy=limits)
    toolbox.governor.charge_turn(
        Turn(Message.assistant(), "stop", SamplingParams(), prompt_tokens=100, completion_tokens=50)
    )
    call = calling(ToolCall("a", "paid", {}))
    assert [rules(await toolbox.answer(call, turn)) for turn in range(5)] == [
        [None], [None], [None], ["budget.cost_usd"], ["budget.cost_usd"],
    ]  # fmt: skip
    report = toolbox.governor.report()
    assert (report["tokens"], report["calls"], report["refusals"]) == (150, 3, {"budget.cost_usd": 2})
    assert report["cost_usd"] == pytest.approx(1.05)


async def test_a_refused_command_is_not_run_and_costs_no_call():
    toolbox = Toolbox([terminal], **SETTINGS, policy=policy(commands={"block": ["rm -rf /"]}))
    (given,) = await toolbox.answer(calling(ToolCall("a", "terminal", {"command": "sudo rm -rf /"})), 0)
    assert json.loads(given.message.content)["error"] == "refused: `rm -rf /` is blocked, found `rm -rf /`"
    assert toolbox.governor.report()["calls"] == 0


async def converse(script, toolbox, max_turns=6):
    client = ScriptedClient(script)
    transcript = Transcript([Message.user("go")])
    async with client.session("t", list(transcript.messages), []) as session:
        limits = Limits(max_turns, 30.0, 30.0)
        await agent_loop(session, transcript, toolbox, limits, SamplingParams(seed=7), Gate())
    return transcript


@pytest.mark.parametrize("budget", [{"calls": 2}, {"tokens": 200}])
async def test_a_spent_budget_ends_the_rollout_with_its_last_calls_answered(budget):
    turn = Turn(echoes(1), "tool_calls", SamplingParams(), prompt_tokens=60, completion_tokens=20)
    transcript = await converse([turn] * 6, box(policy=policy(budget=budget)))
    assert transcript.stop_reason is StopReason.BUDGET
    assert len(transcript.turns) == 3
    assert transcript.messages[-1].role == "tool"
    assert "budget" in transcript.messages[-1].content


async def test_a_model_that_answers_within_its_budget_completes():
    transcript = await converse(
        [echoes(2), Message.assistant("done")], box(policy=policy(budget={"calls": 2}))
    )
    assert transcript.stop_reason is StopReason.COMPLETED


async def test_refusals_are_stored_and_summed_up():
    transcript = await converse(
        [echoes(3), Message.assistant("done")], box(policy=policy(tools={"echo": {"calls": 1}}))
    )
    record = loads(dumps(replace(trajectory_of(transcript.messages), turns=transcript.turns)))
    stored = [each.refused_by for each in record.turns[0].tool_executions]
    assert stored == [None, "tools.echo.calls", "tools.echo.calls"]
    summary = Summary()
    summary.add(Group("g", "i", 1, [record]))
    assert (summary.tool_calls, summary.refused_calls, summary.tool_errors) == (3, 2, 0)


async def test_a_rollout_survives_fifty_calls_a_hang_and_a_hundred_megabytes(monkeypatch):
    monkeypatch.setattr(toolbox_module, "GRACE_S", 0.0)
    storm = calling(
        *(ToolCall(f"c{i}", "echo", {"text": str(i), "delay_s": 0.01}) for i in range(50)),
        ToolCall("h", "hang", {}),
        ToolCall("b", "huge", {"shape": "text"}),
    )
    toolbox = Toolbox([echo, hang, huge], **SETTINGS, policy=policy(tools={"hang": {"timeout_s": 0.2}}))
    transcript = await converse([storm, echoes(1), Message.assistant("done")], toolbox)
    assert transcript.stop_reason is StopReason.COMPLETED
    executions = transcript.turns[0].tool_executions
    assert [each.success for each in executions] == [*[True] * 50, False, True]
    assert max(len(message.content or "") for message in transcript.messages) < 2000


async def test_a_tool_that_raises_ends_the_attempt_and_leaves_no_call_running():
    with pytest.raises(Exception, match="broken raised RuntimeError"):
        await Toolbox([broken, hang], **SETTINGS).answer(
            calling(ToolCall("a", "hang", {}), ToolCall("b", "broken", {})), 0
        )
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
