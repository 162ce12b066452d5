"""Conversations over chat completions, against a loopback server that breaks on request."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inference.fake_server import FakeServer, Fault
from inference.openai_client import OpenAIClient
from inference.scripted_engine import ScriptedEngine
from trajectories.errors import ConfigError, ContextOverflow, ModelError
from trajectories.messages import Message, ToolCall
from trajectories.rows import token_rows
from trajectories.turn import SamplingParams

TOOL = {
    "type": "function",
    "function": {"name": "terminal", "description": "Run.", "parameters": {"type": "object"}},
}
SAMPLING = SamplingParams(max_tokens=9, temperature=0.5, top_p=0.9)


def answer(content: str | None = "hi", *, finish_reason: str | None = "stop", **message: Any) -> dict:
    return {
        "choices": [{"message": {"content": content, **message}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3},
    }


def wire_call(arguments: Any, name: str | None = "terminal", call_id: str | None = "c1") -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def with_ids(prompt_ids: list[int], output_ids: list[int], logprobs: list[Any]) -> dict:
    said = answer() | {"prompt_token_ids": prompt_ids}
    said["choices"][0] |= {
        "token_ids": output_ids,
        "logprobs": {"content": [{"token": "?", "logprob": logprob} for logprob in logprobs]},
    }
    return said


def serve(*answers: dict, **options) -> FakeServer:
    """A server that gives these answers in order, the last one for ever."""
    left = list(answers)
    return FakeServer(
        ScriptedEngine([]), chat=lambda body: left.pop(0) if len(left) > 1 else left[0], **options
    )


@asynccontextmanager
async def talking(
    server: FakeServer, messages: list[Message] | None = None, tools: list | None = None, **options
):
    async with server:
        client = OpenAIClient(server.url + "/v1", **options)
        await client.start()
        try:
            async with client.session("t1", messages or [Message.user("hello")], tools or []) as session:
                yield session
        finally:
            await client.close()


async def test_native_tool_calls_become_tool_calls_and_go_back_as_they_came():
    call = wire_call('{"command": "ls"}')
    server = serve(answer(None, finish_reason="tool_calls", tool_calls=[call]), answer("done"))
    async with talking(server, tools=[TOOL]) as session:
        first = await session.extend([], SAMPLING)
        result = Message.tool("a.txt", call_id="c1", name="terminal")
        second = await session.extend([result], SAMPLING)

    assert first.message.tool_calls == [ToolCall("c1", "terminal", {"command": "ls"})]
    assert first.turn.finish_reason == "tool_calls"
    assert (first.turn.prompt_tokens, first.turn.completion_tokens) == (11, 3)
    assert first.turn.output_ids is None
    assert second.message == Message.assistant("done")
    assert server.calls[0]["tools"] == [TOOL]
    user, assistant, tool = server.calls[1]["messages"]
    assert user == {"role": "user", "content": "hello"}
    assert assistant["content"] is None
    assert [json.loads(sent["function"]["arguments"]) for sent in assistant["tool_calls"]] == [
        {"command": "ls"}
    ]
    assert tool == {"role": "tool", "content": "a.txt", "tool_call_id": "c1"}


async def test_text_that_utf_8_cannot_hold_is_sent_with_replacements():
    server = serve(answer())
    async with talking(server, [Message.user("a \ud83d\ude42 \udc80")]) as session:
        await session.extend([], SAMPLING)

    assert server.calls[0]["messages"][0]["content"] == "a 🙂 \ufffd"


async def test_every_sampling_parameter_is_sent():
    sampling = SamplingParams(9, temperature=0.5, top_p=0.9, top_k=4, seed=3, stop=("END",))
    server = serve(answer())
    async with talking(server) as session:
        await session.extend([], sampling)

    sent = server.calls[0]
    expected = {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 3, "stop": ["END"]}
    expected |= {"model": "fake", "logprobs": True, "return_token_ids": True, "repetition_penalty": 1.0}
    assert {name: sent[name] for name in expected} == expected


async def test_other_servers_are_not_sent_what_only_vllm_knows():
    server = serve(answer(), owned_by="openai")
    async with talking(server, logprobs=False, extra_body={"max_tokens": 5, "user": "me"}) as session:
        await session.extend([], SAMPLING)

    assert server.calls[0] == {
        "model": "fake",
        "n": 1,
        "max_tokens": 5,
        "user": "me",
        "temperature": 0.5,
        "top_p": 0.9,
        "messages": [{"role": "user", "content": "hello"}],
    }


async def test_reasoning_is_kept_and_sent_back_only_where_asked():
    server = serve(answer("4", reasoning_content="2+2"))
    async with talking(server, reasoning_field="reasoning_content") as session:
        first = await session.extend([], SAMPLING)
        await session.extend([Message.user("sure?")], SAMPLING)
    silent = serve(answer("4", reasoning="2+2"))
    async with talking(silent) as session:
        assert (await session.extend([], SAMPLING)).message.reasoning == "2+2"
        await session.extend([Message.user("sure?")], SAMPLING)

    assert first.message.reasoning == "2+2"
    assert server.calls[1]["messages"][1]["reasoning_content"] == "2+2"
    assert silent.calls[1]["messages"][1] == {"role": "assistant", "content": "4"}


@pytest.mark.parametrize(
    ("arguments", "name", "kind"),
    [
        ('{"command": ', "terminal", "invalid_json"),
        ('["ls"]', "terminal", "bad_structure"),
        ('"ls"', "terminal", "bad_structure"),
        ('{"command": "ls"}', None, "missing_name"),
    ],
)
async def test_arguments_that_are_no_object_are_an_error_the_model_is_shown(arguments, name, kind):
    good = wire_call('{"command": "ls"}', call_id="good")
    bad = wire_call(arguments, name, call_id="bad")
    server = serve(answer("Now:", finish_reason="tool_calls", tool_calls=[bad, good]))
    async with talking(server) as session:
        message = (await session.extend([], SAMPLING)).message
        error = Message.tool(message.errors[0].message, call_id=None, name=None)
        await session.extend([error, Message.tool("ok", call_id="good", name="terminal")], SAMPLING)

    assert [call.id for call in message.tool_calls] == ["good"]
    assert [error.kind for error in message.errors] == [kind]
    _, assistant, *results = server.calls[1]["messages"]
    assert [call["id"] for call in assistant["tool_calls"]] == ["good"]
    assert arguments in assistant["content"]
    assert assistant["content"].startswith("Now:\n")
    assert [result["role"] for result in results] == ["tool", "user"]
    assert results[1]["content"] == message.errors[0].message


@pytest.mark.parametrize("arguments", ["", None, {}, "{}"])
async def test_a_call_without_arguments_has_none(arguments):
    server = serve(answer(None, finish_reason="tool_calls", tool_calls=[wire_call(arguments, call_id=None)]))
    async with talking(server) as session:
        message = (await session.extend([], SAMPLING)).message

    assert message.tool_calls == [ToolCall("call_0", "terminal", {})]


async def test_ids_and_logprobs_are_kept_where_the_server_reports_them():
    turns = [with_ids([1, 2], [7, 8], [-0.5, -0.25]), with_ids([1, 2, 7, 8, 3], [9], [-1.5])]
    async with talking(serve(*turns)) as session:
        first = (await session.extend([], SAMPLING)).turn
        second = (await session.extend([Message.user("more")], SAMPLING)).turn

    assert (first.prompt_ids, first.output_ids, first.output_logprobs) == ([1, 2], [7, 8], [-0.5, -0.25])
    assert first.logprobs_kind == "raw"
    (row,) = token_rows([first, second])
    assert row.token_ids == [1, 2, 7, 8, 3, 9]
    assert row.loss_mask == [0, 0, 1, 1, 0, 1]
    assert second.row_cause is None


async def test_numbers_put_for_logprobs_are_none():
    said = with_ids([1], [7, 8], [-0.5, -9999.0])
    del said["choices"][0]["token_ids"]
    async with talking(serve(said)) as session:
        turn = (await session.extend([], SAMPLING)).turn

    assert (turn.output_logprobs, turn.logprobs_kind) == (None, None)


async def test_a_prompt_that_the_template_rewrote_starts_a_new_row():
    turns = [with_ids([1, 2], [7, 8], [-0.5, -0.25]), with_ids([1, 2, 3], [9], [-1.5])]
    async with talking(serve(*turns)) as session:
        first = (await session.extend([], SAMPLING)).turn
        second = (await session.extend([Message.user("more")], SAMPLING)).turn

    assert [row.cause for row in token_rows([first, second])] == ["start", "template"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (with_ids([1], [7, 8], [-0.5]), "2 output ids but 1 logprobs"),
        (with_ids([1], [7, 8], [-0.5, None]), "left out 1 of 2 logprobs"),
        (with_ids([1], [7], [float("nan")]), "no chat completion"),
        (with_ids([1], [7, 8], [-0.5, -9999.0]), "logprob at 1 is -9999.0"),
        ({"choices": []}, "0 choices"),
        (answer(finish_reason="content_filter"), "content_filter"),
        (answer(finish_reason=None), "None"),
        ({"detail": "what?"}, "no chat completion"),
    ],
)
async def test_an_answer_not_to_be_trusted_is_a_model_error_and_changes_nothing(said, reason):
    async with talking(serve(said, answer("fine"))) as session:
        with pytest.raises(ModelError, match=reason):
            await session.extend([Message.user("more")], SAMPLING)
        assert (await session.extend([Message.user("again")], SAMPLING)).message.content == "fine"


async def test_a_call_that_fails_leaves_the_conversation_as_it_was():
    server = serve(answer("fine"))
    async with talking(server, attempts=1) as session:
        server.faults.append(Fault.BROKEN)
        with pytest.raises(ModelError, match="HTTP 500"):
            await session.extend([Message.user("more")], SAMPLING)
        await session.extend([Message.user("again")], SAMPLING)

    assert [message["content"] for message in server.calls[1]["messages"]] == ["hello", "again"]


async def test_a_busy_or_broken_server_is_asked_again():
    server = serve(answer("at last"))
    server.faults.extend([Fault.BUSY, Fault.BROKEN, Fault.HALF_AN_ANSWER])
    async with talking(server) as session:
        assert (await session.extend([], SAMPLING)).message.content == "at last"

    assert len(server.calls) == 4
    assert all(call == server.calls[0] for call in server.calls)


async def test_a_refusal_is_final():
    server = serve(answer())
    server.faults.append(Fault.REFUSED)
    async with talking(server) as session:
        with pytest.raises(ModelError, match="HTTP 400") as failure:
            await session.extend([], SAMPLING)

    assert not failure.value.retryable
    assert len(server.calls) == 1


async def test_a_conversation_too_long_is_a_context_overflow():
    server = serve(answer())
    server.faults.append(Fault.TOO_LONG)
    async with talking(server) as session:
        with pytest.raises(ContextOverflow, match="maximum context length"):
            await session.extend([], SAMPLING)


async def test_cancelling_hangs_up_and_changes_nothing():
    server = serve(answer("fine"))
    async with talking(server) as session:
        server.faults.append(Fault.HANGS)
        task = asyncio.create_task(session.extend([Message.user("more")], SAMPLING))
        async with asyncio.timeout(30):
            while not server.calls:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            await server.abandoned.wait()
        await session.extend([], SAMPLING)

    assert task.cancelled()
    assert [message["content"] for message in server.calls[1]["messages"]] == ["hello"]


async def test_a_fork_and_its_parent_go_separate_ways():
    server = serve(
        with_ids([1], [2], [-1.0]), with_ids([1, 2, 3], [4], [-1.0]), with_ids([1, 2, 5], [6], [-1.0])
    )
    async with talking(server) as session:
        await session.extend([], SAMPLING)
        child = session.fork()
        left = (await session.extend([Message.user("left")], SAMPLING)).turn
        right = (await child.extend([Message.user("right")], SAMPLING)).turn

    said = [[message["content"] for message in call["messages"]] for call in server.calls]
    assert said == [["hello"], ["hello", "hi", "left"], ["hello", "hi", "right"]]
    assert (left.prompt_ids, right.prompt_ids) == ([1, 2, 3], [1, 2, 5])
    assert left.row_cause is right.row_cause is None


async def test_no_server_is_a_config_error_naming_base_url():
    with pytest.raises(ConfigError, match=r"base_url: no server at http://127\.0\.0\.1:9/v1"):
        await OpenAIClient("http://127.0.0.1:9/v1").start()


async def test_a_model_the_server_lacks_is_a_config_error_naming_those_it_has():
    async with serve(answer(), model="mine") as server:
        with pytest.raises(ConfigError, match=r"model: .* serves mine, not yours"):
            await OpenAIClient(server.url + "/v1", "yours").start()


async def test_the_only_model_served_is_taken_and_the_key_is_sent():
    async with serve(answer(), model="mine") as server:
        client = OpenAIClient(server.url + "/v1", api_key="secret")
        await client.start()
        assert client.model == "mine"
        assert client.transport._headers["Authorization"] == "Bearer secret"
        await client.close()
        await client.close()
