import pytest

from inference.scripted_engine import ScriptedEngine, scripted_logprob
from inference.scripted_model import scripted_model
from trajectories.errors import ConfigError, ModelError
from trajectories.messages import Message, ToolCall
from trajectories.rows import token_rows
from trajectories.turn import SamplingParams

SAMPLING = SamplingParams()
ASK = [Message.user("hé")]


async def test_every_session_samples_the_replies_as_tokens():
    call = ToolCall("c", "ls", {"path": "."})
    client = scripted_model([Message.assistant("Look:", tool_calls=[call]), "Done<|im_end|>"])
    await client.start()
    for name in ("a", "b"):
        async with client.session(name, ASK, []) as session:
            first = await session.extend([], SAMPLING)
            result = Message.tool("x", call_id=first.message.tool_calls[0].id, name="ls")
            second = await session.extend([result], SAMPLING)
        assert (first.message.tool_calls[0].name, first.message.tool_calls[0].arguments) == (
            "ls",
            {"path": "."},
        )
        assert second.message.content == "Done"
        assert [row.cause for row in token_rows([first.turn, second.turn])] == ["start"]


async def test_a_reply_without_its_end_was_cut():
    client = scripted_model(["half a sen", ModelError("down")], policy_version="3")
    await client.start()
    async with client.session("a", ASK, []) as session:
        turn = (await session.extend([], SAMPLING)).turn
        assert turn.finish_reason == "length"
        assert turn.policy_versions[0].version == "3"
        with pytest.raises(ModelError, match="down"):
            await session.extend([Message.user("go on")], SAMPLING)


async def test_the_engine_cuts_at_stop_ids_and_at_max_tokens():
    engine = ScriptedEngine([[1, 2, 3], [1, 2, 3], [1, 2, 3]])

    async def sampled(max_tokens, stop_ids=()):
        generation = await engine.generate(
            [9], SamplingParams(max_tokens=max_tokens), session_id="s", stop_ids=stop_ids
        )
        return generation.output_ids, generation.finish_reason

    assert await sampled(5, [2]) == ([1, 2], "stop")
    assert await sampled(1, [2]) == ([1], "length")
    assert await sampled(5) == ([1, 2, 3], "length")
    with pytest.raises(ConfigError, match="3 outputs"):
        await sampled(5)


async def test_the_engine_scores_as_it_samples():
    generation = await ScriptedEngine([[5, 6]]).generate([9, 8], SAMPLING, session_id="s")
    scores = await ScriptedEngine([]).score([9, 8, 5, 6])
    assert scores == [None, scripted_logprob(1, 8), *generation.output_logprobs]


async def test_an_id_outside_the_vocabulary_is_a_failure_of_the_engine():
    with pytest.raises(ModelError, match="outside the vocabulary"):
        await ScriptedEngine([[7]], vocab_size=7).generate([1], SAMPLING, session_id="s")
