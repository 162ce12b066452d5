"""Conversations with native tool calls over the real vLLM, its ids and logprobs included."""

import pytest

from inference.openai_client import OpenAIClient
from tests.real_parts import ON_VLLM
from trajectories.errors import ContextOverflow
from trajectories.messages import Message
from trajectories.rows import token_rows
from trajectories.turn import SamplingParams

pytestmark = ON_VLLM

TOOL = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
FORCED = {"tool_choice": {"type": "function", "function": {"name": "terminal"}}}


@pytest.fixture
async def client(vllm_url):
    client = OpenAIClient(f"{vllm_url}/v1")
    await client.start()
    yield client
    await client.close()


async def test_native_tool_calls_arrive_with_their_ids_and_logprobs(vllm_url):
    client = OpenAIClient(f"{vllm_url}/v1", extra_body=FORCED)
    await client.start()
    messages = [Message.user("List the files.")]
    async with client.session("a", messages, [TOOL]) as session:
        first = await session.extend([], SamplingParams(max_tokens=64, temperature=0, seed=1))
        (call,) = first.message.tool_calls
        result = Message.tool("a.txt", call_id=call.id, name=call.name)
        second = await session.extend([result], SamplingParams(max_tokens=64, temperature=0))
    await client.close()

    assert call.name == "terminal"
    assert not first.message.errors
    for turn in (first.turn, second.turn):
        assert turn.prompt_tokens == len(turn.prompt_ids or [])
        assert turn.completion_tokens == len(turn.output_ids or []) == len(turn.output_logprobs or [])


async def test_plain_turns_extend_one_another_into_one_row(client):
    messages = [Message.system("Answer briefly."), Message.user("What is 2+2?")]
    async with client.session("b", messages, [TOOL]) as session:
        turns = [(await session.extend([], SamplingParams(max_tokens=40, seed=1))).turn]
        for question in ("And 3+3?", "And 4+4?"):
            new = [Message.user(question)]
            turns.append((await session.extend(new, SamplingParams(max_tokens=40, seed=1))).turn)

    rows = token_rows(turns)
    sampled = sum(sum(row.loss_mask) for row in rows)
    assert sampled == sum(len(turn.output_ids or []) for turn in turns)
    assert all(turn.logprobs_kind == "raw" for turn in turns)


async def test_length_and_overflow_are_told_apart(client):
    async with client.session("c", [Message.user("Tell a long story.")], []) as session:
        short = await session.extend([], SamplingParams(max_tokens=3, temperature=0))
        with pytest.raises(ContextOverflow):
            await session.extend([Message.user("word " * 5000)], SamplingParams(max_tokens=3))
        after = await session.extend([Message.user("Go on.")], SamplingParams(max_tokens=3, temperature=0))

    assert short.turn.finish_reason == "length"
    assert after.turn.prompt_tokens is not None and after.turn.prompt_tokens < 100
