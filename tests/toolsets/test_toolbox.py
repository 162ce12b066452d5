"""The toolbox: every call gets one answer, in order; only a failure of the world raises."""

import asyncio
import errno
import json

import pytest

from toolsets import toolbox as toolbox_module
from toolsets.results import KEPT_CHARS
from toolsets.todo import todo
from toolsets.tool import ToolCallContext, ToolResult, tool
from toolsets.toolbox import Toolbox
from trajectories.errors import SandboxDied, ToolError
from trajectories.messages import Message, ParseError, ToolCall

keys: list[str] = []


@tool(runs_in="host")
async def echo(context: ToolCallContext, text: str, delay_s: float = 0) -> ToolResult:
    """Say it again."""
    await asyncio.sleep(delay_s)
    keys.append(context.idempotency_key)
    return ToolResult(text)


@tool(runs_in="host")
async def broken(context: ToolCallContext) -> ToolResult:
    """Raise."""
    raise RuntimeError("out of order")


@tool(runs_in="host")
async def hang(context: ToolCallContext) -> ToolResult:
    """Never return."""
    await asyncio.Event().wait()
    raise AssertionError


@tool()
async def in_slot(context: ToolCallContext) -> ToolResult:
    """Need a sandbox."""
    return ToolResult(context.sandbox.workspace)


async def no_slot():
    raise SandboxDied("gone")


SETTINGS = {
    "task_id": "t",
    "key": "run/item/0/1",
    "slot": no_slot,
    "timeout_s": 5.0,
    "max_result_chars": 1000,
}


def box(**changes) -> Toolbox:
    return Toolbox([echo, broken, hang, in_slot, huge], **{**SETTINGS, **changes})


def calling(*calls: ToolCall | ParseError) -> Message:
    return Message(
        "assistant",
        tool_calls=[call for call in calls if isinstance(call, ToolCall)],
        errors=[error for error in calls if isinstance(error, ParseError)],
    )


async def answers(message: Message, **changes):
    return await box(**changes).answer(message, 0)


async def test_answers_stand_in_the_order_of_the_calls_however_long_each_takes():
    calls = [
        ToolCall(f"c{i}", "echo", {"text": str(i), "delay_s": (5 - i) / 100}, span=(i, i + 1))
        for i in range(5)
    ]
    given = await answers(calling(*calls))
    assert [a.message.content for a in given] == ["0", "1", "2", "3", "4"]
    assert [a.message.tool_call_id for a in given] == ["c0", "c1", "c2", "c3", "c4"]


async def test_each_call_has_a_key_of_its_own_even_where_the_model_repeats_ids():
    keys.clear()
    await answers(calling(ToolCall("same", "echo", {"text": "a"}), ToolCall("same", "echo", {"text": "b"})))
    assert sorted(keys) == ["run/item/0/1/0/0", "run/item/0/1/0/1"]


async def test_what_is_wrong_with_a_call_is_told_to_the_model():
    given = await answers(
        calling(
            ToolCall("a", "ecko", {}, span=(0, 1)),
            ToolCall("b", "echo", {"txt": "x"}, span=(1, 2)),
            ParseError("invalid_json", "<tool_call>{", (2, 3), "the arguments are not JSON"),
            ToolCall("d", "echo", {"text": "fine"}, span=(3, 4)),
        )
    )
    told = [a.message.content for a in given]
    assert "did you mean 'echo'" in told[0]
    assert "unknown argument 'txt'" in told[1]
    assert "the arguments are not JSON" in told[2]
    assert told[3] == "fine"
    assert [a.execution.success for a in given if a.execution] == [False, False, True]


async def test_a_flagged_call_is_answered_once():
    given = await answers(
        calling(
            ToolCall("a", "ecko", {}, span=(0, 9)),
            ParseError("unknown_tool", "<tool_call>…", (0, 9), "no such tool"),
        )
    )
    assert len(given) == 1


async def test_a_tool_that_hangs_is_stopped_and_the_model_told(monkeypatch):
    monkeypatch.setattr(toolbox_module, "GRACE_S", 0.0)
    (given,) = await answers(calling(ToolCall("a", "hang", {})), timeout_s=0.05)
    assert "did not finish within 0.05 s" in given.message.content
    assert given.execution.success is False


async def test_a_tool_that_raises_is_the_worlds_failure():
    with pytest.raises(ToolError, match="broken raised RuntimeError: out of order"):
        await answers(calling(ToolCall("a", "broken", {})))


async def test_a_dead_sandbox_is_raised_and_never_shown_to_the_model():
    with pytest.raises(SandboxDied):
        await answers(calling(ToolCall("a", "in_slot", {}), ToolCall("b", "echo", {"text": "x"})))


async def test_a_message_without_calls_needs_no_answer():
    assert await answers(Message.assistant("done")) == []


async def test_fifty_parallel_calls_all_get_their_answer():
    calls = [ToolCall(f"c{i}", "echo", {"text": str(i)}) for i in range(50)]
    assert len(await answers(calling(*calls))) == 50


HUGE = 100 * 2**20


@tool(runs_in="host")
async def huge(context: ToolCallContext, shape: str) -> ToolResult:
    """Return more than anyone wants to read."""
    text = "x" * HUGE
    return ToolResult(text if shape == "text" else {"output": text, "exit_code": 0})


class Drawer:
    """A sandbox that only keeps files."""

    def __init__(self, full: bool = False):
        self.files: dict[str, bytes] = {}
        self._full = full

    async def write_file(self, path, data):
        if self._full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.files[path] = data


@pytest.mark.parametrize("shape", ["text", "parts"])
async def test_a_huge_result_is_bounded_and_kept_where_the_agent_can_read_it(shape):
    drawer = Drawer()

    async def slot():
        return drawer

    (given,) = await answers(calling(ToolCall("a", "huge", {"shape": shape})), slot=slot)
    assert len(given.message.content) < 1400
    assert "the whole text is in /tmp/tool-results/0-0.txt, read it in parts" in given.message.content
    kept = drawer.files["/tmp/tool-results/0-0.txt"]
    assert set(kept[: KEPT_CHARS // 2]) == {ord("x")}
    assert len(kept) < KEPT_CHARS + 200
    assert (shape == "text") or '"exit_code":0' in given.message.content


async def test_a_huge_result_is_bounded_where_nothing_can_be_kept():
    drawer = Drawer(full=True)

    async def slot():
        return drawer

    (given,) = await answers(calling(ToolCall("a", "huge", {"shape": "text"})), slot=slot)
    assert len(given.message.content) < 1400
    assert "characters left out]" in given.message.content


async def test_a_call_runs_at_most_once():
    keys.clear()
    toolbox, message = box(), calling(ToolCall("a", "echo", {"text": "hi"}))
    first = await toolbox.answer(message, 3)
    assert await toolbox.answer(message, 3) == first
    assert keys == ["run/item/0/1/3/0"]
    await toolbox.answer(message, 4)
    assert len(keys) == 2


async def test_a_call_that_was_interrupted_is_not_begun_again():
    toolbox, message = box(), calling(ToolCall("a", "hang", {}))
    running = asyncio.create_task(toolbox.answer(message, 0))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ToolError, match="run/item/0/1/0/0 was begun before"):
        await toolbox.answer(message, 0)


async def test_tools_remember_within_an_attempt_and_not_beyond():
    toolbox = Toolbox([todo], **SETTINGS)
    items = [{"task": "write", "status": "doing"}]
    await toolbox.answer(calling(ToolCall("a", "todo", {"items": items})), 0)
    (again,) = await toolbox.answer(calling(ToolCall("a", "todo", {})), 1)
    assert json.loads(again.message.content) == {"items": items, "count": {"doing": 1}}
    (fresh,) = await Toolbox([todo], **SETTINGS).answer(calling(ToolCall("a", "todo", {})), 0)
    assert json.loads(fresh.message.content)["items"] == []
