"""The JSON Lines record: what is read is what was written, and each token is stored once."""

from dataclasses import replace

import msgspec
import pytest

from tests.builders import trajectory_of
from trajectories import record
from trajectories.errors import ConfigError
from trajectories.messages import Message, ToolCall
from trajectories.tokens import TokenPrefix
from trajectories.trajectory import Failure, StopReason, Trajectory
from trajectories.turn import PolicySpan, SamplingParams, ToolExecution, Turn


def trajectory(turns: int = 3) -> Trajectory:
    messages, made, ids = (
        [Message.system("be terse"), Message.user("list files")],
        [],
        TokenPrefix(range(100)),
    )
    for index in range(turns):
        call = ToolCall(
            f"call-{index}", "terminal", {"command": "ls"}, raw="<tool_call>…</tool_call>", span=(0, 24)
        )
        message = Message.assistant("läs 😀", tool_calls=[call])
        output = [7, 8, index]
        execution = ToolExecution(call.id, "terminal", f"t/1/{index}/0", True, 0.01)
        made.append(
            Turn(
                message,
                "stop",
                SamplingParams(max_tokens=3, stop=("x",)),
                prompt_ids=ids,
                output_ids=output,
                output_logprobs=[-0.1, -2.5e-7, -1 / 3],
                logprobs_kind="raw",
                policy_versions=[PolicySpan("4", 0, 3)],
                tool_executions=[execution],
            )
        )
        messages += [message, Message.tool("a", call_id=call.id, name="terminal")]
        ids = ids.append(output).append([1, 2])
    whole = trajectory_of(
        messages,
        tools=[{"type": "function"}],
        model="tiny@abc",
        stop_reason=StopReason.MAX_TURNS,
        reward=0.1 + 0.2,
        error=Failure("tool", "ToolError", "down", True),
    )
    return replace(whole, turns=made)


def test_what_is_read_is_what_was_written():
    original = trajectory()
    assert record.loads(record.dumps(original)) == original


def test_a_read_record_is_written_back_byte_for_byte():
    line = record.dumps(trajectory())
    assert record.dumps(record.loads(line)) == line


def test_rows_survive_the_round_trip_as_one_row():
    original = trajectory()
    again = record.loads(record.dumps(original))
    assert again.rows() == original.rows()
    assert [row.cause for row in again.rows()] == ["start"]


def test_each_prompt_token_is_stored_once_however_many_turns():
    stored = msgspec.json.decode(record.dumps(trajectory(turns=40)))["turns"]
    assert sum(len(turn["prompt_ids"]) for turn in stored) == 100 + 39 * 2


def test_a_turn_that_breaks_the_prefix_is_stored_whole():
    original = trajectory(2)
    broken = replace(original, turns=[original.turns[0], replace(original.turns[1], prompt_ids=[5, 6])])
    again = record.loads(record.dumps(broken))
    assert list(again.turns[1].prompt_ids) == [5, 6]
    assert [row.cause for row in again.rows()] == ["start", "history_edit"]


def test_a_message_outside_the_conversation_is_kept_with_its_turn():
    original = trajectory(1)
    subagent = replace(original.turns[0], message=Message.assistant("from a sub-agent"))
    again = record.loads(record.dumps(replace(original, turns=[subagent])))
    assert again.turns[0].message.content == "from a sub-agent"


def test_text_that_utf_8_cannot_hold_comes_back_as_it_was():
    call = ToolCall("c", "terminal", {"half \ud83d": ["\udc80"]})
    original = trajectory_of([Message.user("\ud83d"), Message.assistant(tool_calls=[call])])
    assert record.loads(record.dumps(original)) == original


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not a trajectory record"),
        (b"[]", "not a trajectory record"),
        (b'{"schema_version": 1}', "messages"),
        (b'{"schema_version": 99}', "reads up to 1"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(line, complaint):
    with pytest.raises(ConfigError, match=complaint):
        record.loads(line)


def test_a_bad_line_is_named_by_file_and_number(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(record.dumps(trajectory()) + b"\n{}\n")
    with pytest.raises(ConfigError, match=r"data\.jsonl, line 2"):
        list(record.read_trajectories(path))
