"""Sessions against a real vLLM server: its own rendering, its own logprobs."""

import asyncio
import json
from dataclasses import dataclass, field

import aiohttp
import pytest

from inference.audit import audit
from inference.chat_template import OURS
from inference.detect import connect
from inference.managed import ManagedClient
from inference.model_files import load_model_files
from tests.inference.sessions.strategies import TOOL
from tests.real_parts import ON_VLLM
from trajectories.messages import Message
from trajectories.trajectory import StopReason, Trajectory
from trajectories.turn import SamplingParams

pytestmark = ON_VLLM

ROLLOUTS = 64
TURNS = 3
SAMPLING = SamplingParams(max_tokens=32, temperature=1.0, top_p=1.0)
MAX_DELTA = 1e-3
"""Largest |Δ logprob| that is numeric noise.

In float32, sampling in batches of changing size and scoring in one piece differed by 4.9e-5 at most over
12,657 tokens (mean 5e-6), since sums are taken in another order. A token that is shifted or was sampled on
another prefix differs by about 1. The bound is twenty times the noise.
"""

OPENING = [
    Message.system("You work in a terminal. Answer with one tool call."),
    Message.user("Make a folder called src."),
    Message.assistant(
        '<tool_call>\n{"name": "terminal", "arguments": {"command": "mkdir src"}}\n</tool_call>'
    ),
]
TASKS = ["Make a folder called build.", "Write zebra into x1.log.", "Count the lines of a.txt.", "Say hello."]


@dataclass
class Rollout:
    turns: list = field(default_factory=list)
    conversations: list = field(default_factory=list)
    """The messages behind each turn's prompt."""


@pytest.fixture(scope="module")
def rollouts(vllm_url, model_folder):
    return asyncio.run(run_all(vllm_url, model_folder))


async def run_all(url, folder):
    client = await managed(url, folder)
    try:
        return await asyncio.gather(*(run_one(client, index) for index in range(ROLLOUTS)))
    finally:
        await client.close()


async def managed(url, folder):
    files = load_model_files(folder)
    engine = await connect(url, vocab_size=files.vocab_size)
    client = ManagedClient(engine, files, chat_template=OURS, trust_first_prompt=True)
    await client.start()
    return client


async def run_one(client, index):
    rollout = Rollout()
    messages = [*OPENING, Message.user(TASKS[index % len(TASKS)])]
    async with client.session(f"rollout-{index}", messages, [TOOL]) as session:
        new = []
        for turn in range(TURNS):
            completion = await session.extend(new, SAMPLING)
            rollout.turns.append(completion.turn)
            rollout.conversations.append(list(messages))
            new = answers(completion.message, turn)
            messages += [said(client, completion), *new]
    return rollout


def answers(message, turn):
    """Answer calls by results, malformed ones by what is wrong, and text by a question."""
    results = [
        Message.tool(f'{{"output": "é {turn}\\n", "exit_code": 0}}', call_id=call.id, name=call.name)
        for call in message.tool_calls
    ]
    results += [Message.tool(error.message, call_id=None, name=None) for error in message.errors]
    return results or [Message.user(f"  And then? \n({turn})")]


def said(client, completion):
    """Return the message as another client would send it back; text that is no call in its own words."""
    if completion.message.tool_calls and not completion.message.errors:
        return completion.message
    encoder = client.bridge.encoder
    return Message.assistant(encoder.decode(completion.turn.output_ids).removesuffix("<|im_end|>"))


def openai(message):
    told = {"role": message.role, "content": message.content or ""}
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        told["tool_call_id"] = message.tool_call_id or "none"
    return told


async def test_prompts_equal_the_servers_own_tokens(rollouts, vllm_url):
    """The server renders and tokenizes every conversation from its messages, knowing nothing of sessions."""
    whole = tails = 0
    async with aiohttp.ClientSession(vllm_url) as http:
        for rollout in rollouts:
            previous = []
            for turn, messages in zip(rollout.turns, rollout.conversations, strict=True):
                body = {"messages": [openai(message) for message in messages], "tools": [TOOL]}
                async with http.post("/tokenize", json=body) as response:
                    assert response.status == 200, await response.text()
                    theirs = (await response.json())["tokens"]
                ours = list(turn.prompt_ids)
                if theirs[: len(previous)] == previous:
                    assert ours == theirs
                    whole += 1
                else:
                    bridge = len(ours) - len(previous)
                    assert ours[-bridge:] == theirs[-bridge:]
                    tails += 1
                previous = ours + turn.output_ids
    print(f"{whole} prompts equal, {tails} after a turn that is no canonical text equal from there on")
    assert whole >= 2 * ROLLOUTS


async def test_the_audit_agrees(rollouts, vllm_url, model_folder):
    client = await managed(vllm_url, model_folder)
    try:
        records = [record(index, rollout, client.model) for index, rollout in enumerate(rollouts)]
        report = await audit(records, client.engine, max_delta=MAX_DELTA)
    finally:
        await client.close()
    print(report)
    assert report.violations == []
    assert report.rows == {"start": ROLLOUTS}
    assert report.compared == report.sampled > ROLLOUTS * TURNS


def record(index, rollout, model):
    return Trajectory(
        trajectory_id=str(index),
        group_id="",
        item_key="",
        repetition=0,
        attempt=1,
        environment="test",
        config_hash="",
        model=model,
        seed=0,
        messages=[],
        tools=[TOOL],
        turns=rollout.turns,
        stop_reason=StopReason.MAX_TURNS,
    )
