import pytest

from inference.scripted import ScriptedClient
from trajectories.errors import ConfigError, ModelError
from trajectories.messages import Message, ToolCall
from trajectories.turn import SamplingParams, Turn

SAMPLING = SamplingParams(max_tokens=9)
ASK = [Message.user("hi")]


async def test_every_session_replays_the_script_from_its_beginning():
    client = ScriptedClient([Message.assistant("one"), Message.assistant("two")])
    for _ in range(2):
        async with client.session("t", ASK, []) as session:
            assert (await session.extend([], SAMPLING)).message.content == "one"
            assert (await session.extend([Message.user("go on")], SAMPLING)).message.content == "two"


async def test_a_reply_with_calls_finishes_as_tool_calls():
    call = ToolCall("c", "ls", {})
    async with ScriptedClient([Message.assistant(tool_calls=[call])]).session("t", ASK, []) as session:
        completion = await session.extend([], SAMPLING)
    assert completion.turn.finish_reason == "tool_calls"
    assert completion.turn.sampling is SAMPLING


async def test_a_whole_turn_is_given_as_it_is():
    turn = Turn(Message.assistant("cut o"), "length", SAMPLING)
    async with ScriptedClient([turn]).session("t", ASK, []) as session:
        assert (await session.extend([], SAMPLING)).turn is turn


async def test_a_function_decides_from_what_the_model_was_shown():
    def echo(messages, tools):
        return Message.assistant(f"{len(messages)} {messages[-1].content} {len(tools)}")

    async with ScriptedClient(echo).session("t", ASK, [{}]) as session:
        assert (await session.extend([], SAMPLING)).message.content == "1 hi 1"
        assert (await session.extend([Message.user("b")], SAMPLING)).message.content == "3 b 1"


async def test_an_async_function_is_awaited():
    async def say(messages, tools):
        return Message.assistant("later")

    async with ScriptedClient(say).session("t", ASK, []) as session:
        assert (await session.extend([], SAMPLING)).message.content == "later"


async def test_a_scripted_error_leaves_the_conversation_as_it_was():
    client = ScriptedClient([ModelError("down"), Message.assistant("up")])
    async with client.session("t", ASK, []) as session:
        with pytest.raises(ModelError, match="down"):
            await session.extend([Message.user("lost")], SAMPLING)
        await session.extend([Message.user("kept")], SAMPLING)
    assert [m.content for m in client.calls[-1].messages] == ["hi", "kept"]


async def test_a_script_that_ran_out_is_a_mistake_of_ours():
    async with ScriptedClient([]).session("t", ASK, []) as session:
        with pytest.raises(ConfigError, match="0 replies"):
            await session.extend([], SAMPLING)


async def test_forks_go_on_from_the_same_place_and_apart():
    client = ScriptedClient([Message.assistant("a"), Message.assistant("b")])
    async with client.session("t", ASK, []) as session:
        await session.extend([], SAMPLING)
        child = session.fork()
        assert (await session.extend([Message.user("x")], SAMPLING)).message.content == "b"
        assert (await child.extend([Message.user("y")], SAMPLING)).message.content == "b"
    assert [m.content for m in client.calls[-1].messages] == ["hi", "a", "y"]
