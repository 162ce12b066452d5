"""Token-exact sessions, driven by an engine that says what it is told to."""

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from inference.managed import ManagedClient
from inference.model_files import ModelFiles
from inference.scripted_engine import ScriptedEngine, scripted_logprob
from tests.builders import trajectory_of
from tests.inference.sessions.driving import ASK, BY_NAME, CALL, SAMPLING, client_of, ids, result, said
from tests.inference.sessions.families import load
from tests.inference.sessions.strategies import TOOL
from trajectories.errors import ConfigError, ContextOverflow, ModelError
from trajectories.messages import Message
from trajectories.record import dumps, loads
from trajectories.rows import token_rows
from trajectories.turn import SamplingParams


async def test_the_next_prompt_is_prompt_and_output_and_bridge():
    client = await client_of(CALL + "<|im_end|>", "Done<|im_end|>")
    async with client.session("t", ASK, [TOOL]) as session:
        first = (await session.extend([], SAMPLING)).turn
        second = (await session.extend([result()], SAMPLING)).turn
    assert list(second.prompt_ids) == [
        *first.prompt_ids,
        *first.output_ids,
        *ids(
            "\n<|im_start|>tool\n<tool_response>\na.txt\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        ),
    ]
    assert client.engine.calls[1].prompt_ids == list(second.prompt_ids)
    assert [turn.row_cause for turn in (first, second)] == ["start", None]


async def test_sampled_ids_are_kept_though_their_text_encodes_otherwise():
    letters = [token for letter in "hello" for token in ids(letter)]
    assert letters != ids("hello")
    client = await client_of(script=[[*letters, *ids("<|im_end|>")], ids("x<|im_end|>")])
    async with client.session("t", ASK, []) as session:
        first = (await session.extend([], SAMPLING)).turn
        second = (await session.extend([Message.user("more")], SAMPLING)).turn
    assert first.message.content == "hello"
    assert list(second.prompt_ids)[len(first.prompt_ids) :][: len(letters)] == letters


async def test_the_message_has_the_calls_and_the_turn_says_so():
    client = await client_of(CALL + "<|im_end|>")
    async with client.session("t", ASK, [TOOL]) as session:
        completion = await session.extend([], SAMPLING)
    assert [(call.name, call.arguments) for call in completion.message.tool_calls] == [
        ("terminal", {"command": "ls"})
    ]
    assert completion.turn.finish_reason == "tool_calls"
    assert completion.turn.output_ids == ids(CALL + "<|im_end|>")


async def test_a_cut_turn_stays_length_and_is_closed_with_untrained_tokens():
    client = await client_of(CALL, "Done<|im_end|>")
    async with client.session("t", ASK, []) as session:
        first = await session.extend([], SamplingParams(max_tokens=3))
        second = await session.extend([Message.user("go on")], SAMPLING)
    assert first.turn.finish_reason == "length"
    assert first.message.tool_calls == []
    row = token_rows([first.turn, second.turn])[0]
    end = len(first.turn.prompt_ids) + 3
    assert row.token_ids[end] == ids("<|im_end|>")[0]
    assert row.loss_mask[end - 1 : end + 1] == [1, 0]
    assert said(row.token_ids).count("<|im_end|>") == 4


async def test_a_foreign_end_token_is_kept_and_the_turn_closed_as_the_template_does():
    end_of_text = load(BY_NAME["hermes"]).encoder.control["<|endoftext|>"]
    loaded = load(BY_NAME["hermes"])
    files = ModelFiles(loaded.files.tokenizer, stop_ids=frozenset({end_of_text}))
    engine = ScriptedEngine([ids("bye<|endoftext|>"), ids("x<|im_end|>")])
    client = ManagedClient(engine, files, chat_template="hermes")
    await client.start()
    async with client.session("t", ASK, []) as session:
        first = await session.extend([], SAMPLING)
        second = await session.extend([Message.user("more")], SAMPLING)
    assert first.message.content == "bye"
    assert first.turn.finish_reason == "stop"
    assert first.turn.output_ids[-1] == end_of_text
    assert "bye<|endoftext|><|im_end|>\n<|im_start|>user\nmore" in said(second.turn.prompt_ids)


async def test_an_empty_output_is_no_end():
    client = await client_of(script=[[], ids("x<|im_end|>")])
    async with client.session("t", ASK, []) as session:
        first = await session.extend([], SAMPLING)
        second = await session.extend([Message.user("well?")], SAMPLING)
    assert first.turn.output_ids == []
    assert "assistant\n<|im_end|>\n<|im_start|>user\nwell?" in said(second.turn.prompt_ids)
    assert len(token_rows([first.turn, second.turn])) == 1


async def test_parallel_results_are_rendered_together():
    client = await client_of(f"{CALL}\n{CALL}<|im_end|>", "Done<|im_end|>", family="qwen2.5")
    async with client.session("t", ASK, [TOOL]) as session:
        first = await session.extend([], SAMPLING)
        results = [
            Message.tool(str(i), call_id=call.id, name=call.name)
            for i, call in enumerate(first.message.tool_calls)
        ]
        second = await session.extend(results, SAMPLING)
    bridge = said(second.turn.prompt_ids, "qwen2.5").split("<|im_end|>")[-2]
    assert bridge == (
        "\n<|im_start|>user\n<tool_response>\n0\n</tool_response>\n<tool_response>\n1\n</tool_response>"
    )


async def test_a_failed_call_leaves_the_session_as_it_was():
    client = await client_of("a<|im_end|>", ModelError("down"), "b<|im_end|>")
    async with client.session("t", ASK, []) as session:
        await session.extend([], SAMPLING)
        with pytest.raises(ModelError):
            await session.extend([Message.user("lost")], SAMPLING)
        turn = (await session.extend([Message.user("kept")], SAMPLING)).turn
    text = said(turn.prompt_ids)
    assert "kept" in text
    assert "lost" not in text


class Stuck(ScriptedEngine):
    """Never answers a prompt that says ``wait``."""

    async def generate(self, prompt_ids, sampling, *, session_id, stop_ids=()):
        if "wait" in said(prompt_ids):
            await asyncio.Event().wait()
        return await super().generate(prompt_ids, sampling, session_id=session_id, stop_ids=stop_ids)


async def test_a_cancelled_call_leaves_the_session_as_it_was():
    client = ManagedClient(Stuck([ids("a<|im_end|>"), ids("b<|im_end|>")]), load(BY_NAME["hermes"]).files)
    await client.start()
    async with client.session("t", ASK, []) as session:
        first = (await session.extend([], SAMPLING)).turn
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.extend([Message.user("wait")], SAMPLING), 0.01)
        second = (await session.extend([Message.user("kept")], SAMPLING)).turn
    assert "wait" not in said(second.prompt_ids)
    assert len(token_rows([first, second])) == 1


async def test_forks_share_the_past_and_part_from_there():
    client = await client_of("a<|im_end|>", "b<|im_end|>", "c<|im_end|>")
    async with client.session("t", ASK, []) as session:
        first = (await session.extend([], SAMPLING)).turn
        child = session.fork()
        left = (await session.extend([Message.user("left")], SAMPLING)).turn
        right = (await child.extend([Message.user("right")], SAMPLING)).turn
    past = [*first.prompt_ids, *first.output_ids]
    assert left.prompt_ids[: len(past)] == right.prompt_ids[: len(past)] == past
    assert "left" not in said(right.prompt_ids)
    assert "right" not in said(left.prompt_ids)


async def test_a_fork_does_not_copy_what_it_shares():
    client = await client_of("a<|im_end|>", "b<|im_end|>")
    async with client.session("t", ASK, []) as session:
        first = (await session.extend([], SAMPLING)).turn
        turn = (await session.fork().extend([Message.user("x")], SAMPLING)).turn
    assert turn.prompt_ids.shares_memory_with(first.prompt_ids)


async def test_max_tokens_is_cut_to_the_room_that_is_left():
    prompt = load(BY_NAME["hermes"]).bridge.prompt(ASK, [], now=datetime.now())
    client = await client_of("a b c d e<|im_end|>", engine={"context_length": len(prompt) + 2})
    async with client.session("t", ASK, []) as session:
        turn = (await session.extend([], SAMPLING)).turn
        assert turn.sampling.max_tokens == 2
        with pytest.raises(ContextOverflow):
            await session.extend([Message.user("more")], SAMPLING)


async def test_the_turn_records_what_was_used():
    client = await client_of("a<|im_end|>", engine={"policy_version": "7"})
    async with client.session("t", ASK, []) as session:
        turn = (await session.extend([], SAMPLING)).turn
    start = len(turn.prompt_ids)
    assert turn.output_logprobs == [scripted_logprob(start + i, t) for i, t in enumerate(turn.output_ids)]
    assert [(span.version, span.start, span.end) for span in turn.policy_versions] == [("7", 0, 2)]
    assert (turn.prompt_tokens, turn.completion_tokens, turn.logprobs_kind) == (start, 2, "raw")


async def test_reasoning_is_told_from_a_prompt_that_opened_it():
    client = await client_of("hm</think>yes<｜end▁of▁sentence｜>", family="deepseek-r1")
    assert client.report.opens_reasoning
    async with client.session("t", ASK, []) as session:
        message = (await session.extend([], SAMPLING)).message
    assert (message.reasoning, message.content) == ("hm", "yes")


async def test_tools_without_a_template_that_carries_them_are_refused():
    client = await client_of(family="smollm2", chat_template=None, engine={})
    assert client.report.template == "shipped template 'hermes'", "ChatML models get the shipped one"
    loaded = load(BY_NAME["smollm2"])
    template = loaded.files.chat_template.replace("im_", "IM_")
    llama = load(BY_NAME["llama3"]).files.tokenizer
    bare = ManagedClient(ScriptedEngine([]), ModelFiles(llama, template))
    await bare.start()
    with pytest.raises(ConfigError, match="carries no tools"):
        async with bare.session("t", ASK, [TOOL]):
            pass


async def test_a_client_must_be_started():
    client = ManagedClient(ScriptedEngine([]), load(BY_NAME["hermes"]).files)
    with pytest.raises(ConfigError, match="start"):
        async with client.session("t", ASK, []):
            pass


async def test_a_tokenizer_without_any_template_is_refused():
    tokenizer = load(BY_NAME["llama3"]).files.tokenizer
    with pytest.raises(ConfigError, match="no chat template"):
        await ManagedClient(ScriptedEngine([]), ModelFiles(tokenizer)).start()


async def test_half_a_surrogate_pair_is_told_as_a_replacement_and_recorded_as_it_was():
    call = CALL.replace('"ls"', '"a\\ud83d\\ude42\\udc80"')
    client = await client_of(call + "<|im_end|>", "Done<|im_end|>")
    async with client.session("t", [Message.user("\ud83d?")], [TOOL]) as session:
        first = await session.extend([], SAMPLING)
        second = await session.extend([result("b\ud83d\ude42\udc80")], SAMPLING)
    assert "user\n\ufffd?<|im_end|>" in said(first.turn.prompt_ids)
    assert "<tool_response>\nb🙂\ufffd\n</tool_response>" in said(second.turn.prompt_ids)
    assert first.message.tool_calls[0].arguments == {"command": "a🙂\udc80"}
    kept = replace(trajectory_of([first.message]), turns=[first.turn])
    assert loads(dumps(kept)).messages == kept.messages


async def test_the_date_is_asked_once_a_session():
    dates = iter([datetime(1999, 12, 31), datetime(2000, 1, 1)])
    client = await client_of(
        "a<|eot_id|>", "b<|eot_id|>", family="llama3", history="template", clock=lambda: next(dates)
    )
    async with client.session("t", ASK, []) as session:
        first = (await session.extend([], SAMPLING)).turn
        second = (await session.fork().extend([Message.user("x")], SAMPLING)).turn
    for turn in (first, second):
        assert "31 Dec 1999" in said(turn.prompt_ids, "llama3")
