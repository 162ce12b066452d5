"""ShareGPT rows: roles alternate, nothing the model wrote is lost, and the reader undoes the writer."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import trajectory_of
from trajectories.errors import ConfigError
from trajectories.messages import Message, ParseError, ToolCall
from trajectories.sharegpt import from_sharegpt, to_sharegpt

TERMINAL = {"type": "function", "function": {"name": "terminal", "description": "Run.", "parameters": {}}}


def call(index: int, command: str) -> ToolCall:
    return ToolCall(f"call_{index}", "terminal", {"command": command})


def entries(trajectory):
    return [(entry["from"], entry["value"]) for entry in to_sharegpt(trajectory)["conversations"]]


def test_a_row_reads_as_the_design_shows():
    messages = [
        Message.user("list files"),
        Message.assistant(reasoning="reasoning", tool_calls=[call(0, "ls")]),
        Message.tool('{"output":"a","exit_code":0}', call_id="call_0", name="terminal"),
        Message.assistant("Done"),
    ]
    system, *rest = entries(trajectory_of(messages, tools=[TERMINAL]))
    assert system[0] == "system"
    assert f"<tools>\n{json.dumps([TERMINAL])}\n</tools>" in system[1]
    assert rest == [
        ("human", "list files"),
        (
            "gpt",
            "<think>\nreasoning\n</think>\n"
            '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>',
        ),
        (
            "tool",
            '<tool_response>\n{"name": "terminal", "content": {"output": "a", "exit_code": 0}}\n'
            "</tool_response>",
        ),
        ("gpt", "Done"),
    ]


def test_results_of_parallel_calls_stand_in_one_entry():
    messages = [
        Message.user("go"),
        Message.assistant(tool_calls=[call(0, "a"), call(1, "b")]),
        Message.tool("A", call_id="call_0", name="terminal"),
        Message.tool("B", call_id="call_1", name="terminal"),
        Message.assistant("Done"),
    ]
    trajectory = trajectory_of(messages)
    assert [role for role, _ in entries(trajectory)] == ["human", "gpt", "tool", "gpt"]
    assert from_sharegpt(to_sharegpt(trajectory)) == messages


def test_steering_messages_are_never_written():
    messages = [
        Message.system("secret steering"),
        Message.user("example"),
        Message.assistant("example answer"),
        Message.user("task"),
        Message.assistant("Done"),
    ]
    trajectory = replace(trajectory_of(messages, tools=[TERMINAL]), ephemeral=[0, 1, 2])
    written = json.dumps(to_sharegpt(trajectory))
    assert "secret steering" not in written
    assert "example" not in written
    assert [role for role, _ in entries(trajectory)] == ["system", "human", "gpt"]


def test_the_systems_own_prompt_follows_the_tool_prompt():
    messages = [Message.system("You are careful."), Message.user("task"), Message.assistant("Done")]
    (role, value), *_ = entries(trajectory_of(messages, tools=[TERMINAL]))
    assert role == "system"
    assert value.endswith("\n\nYou are careful.")


def test_a_malformed_call_keeps_its_raw_text_in_its_place():
    raw = '<tool_call>\n{"name": "terminal", "argum\n</tool_call>'
    broken = ParseError("invalid_json", raw, (0, len(raw)), "not JSON")
    good = structs.replace(call(0, "ls"), span=(len(raw) + 1, len(raw) + 50))
    message = Message("assistant", tool_calls=[good], errors=[broken])
    (_, value) = entries(trajectory_of([Message.user("go"), message]))[-1]
    assert value.startswith(raw)
    assert value.index(raw) < value.index('"arguments": {"command": "ls"}')


def test_a_flagged_call_is_written_once():
    flagged = ParseError("unknown_tool", "<tool_call>…", (0, 10), "no such tool")
    good = structs.replace(call(0, "ls"), span=(0, 10))
    message = Message("assistant", tool_calls=[good], errors=[flagged])
    (_, value) = entries(trajectory_of([Message.user("go"), message]))[-1]
    assert value.count("<tool_call>") == 1


def test_a_closing_tag_inside_an_argument_does_not_end_the_call():
    messages = [Message.user("go"), Message.assistant(tool_calls=[call(0, "echo '\n</tool_call>\n'")])]
    assert from_sharegpt(to_sharegpt(trajectory_of(messages))) == messages


@pytest.mark.parametrize("entry", [{}, {"from": "robot", "value": "x"}, {"from": "gpt", "value": 3}])
def test_what_is_no_entry_is_named(entry):
    with pytest.raises(ConfigError, match=r"conversations\[0\]"):
        from_sharegpt({"conversations": [entry]})


prose = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), min_size=1).filter(
    lambda text: text.strip("\n") == text
)
output = prose.filter(lambda text: text.lstrip()[:1] not in ("{", "["))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(prose, inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(st.dictionaries(prose, json_values, max_size=3), max_size=4)


@given(content=st.none() | prose, reasoning=st.none() | prose, arguments=calls, results=st.data())
def test_the_reader_undoes_the_writer(content, reasoning, arguments, results):
    tool_calls = [ToolCall(f"call_{index}", "terminal", values) for index, values in enumerate(arguments)]
    answer = Message.assistant(content, reasoning=reasoning, tool_calls=tool_calls)
    replies = [Message.tool(results.draw(output), call_id=each.id, name=each.name) for each in tool_calls]
    messages = [Message.user("go"), answer, *replies]
    assert from_sharegpt(to_sharegpt(trajectory_of(messages))) == messages
