"""What holds of every session, whatever the model, the user and the tools write."""

import asyncio
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.managed import ManagedClient
from inference.scripted_engine import ScriptedEngine, scripted_logprob
from tests.inference.sessions.driving import BY_NAME
from tests.inference.sessions.families import FAMILIES, REAL_FAMILIES, load
from tests.inference.sessions.strategies import TOOL, compact, conversations, few, many, texts
from trajectories.messages import Message
from trajectories.rows import token_rows
from trajectories.turn import SamplingParams

WILD = ["hermes", "qwen3", "llama3", "deepseek-r1", "mistral"]
NEVER_REWRITES = ["hermes", "smollm2", "qwen2.5", "qwen3", "llama3", "deepseek-v3"]
"""Templates that leave history alone, at least while nothing in it is reasoning."""


def append_only(families):
    return [family for family in families if family.name.removeprefix("real-") in NEVER_REWRITES]


clients = {}
NOW = datetime(2026, 3, 4)


def client_for(family, history="append"):
    """Return a started client whose engine takes its outputs from ``client.engine.outputs``."""
    key = family.name, history
    if key not in clients:
        outputs = []
        engine = ScriptedEngine(lambda _: outputs.pop(0))
        engine.outputs = outputs
        template = family.template if family.template == "hermes" else None
        clients[key] = ManagedClient(
            engine, load(family).files, history=history, chat_template=template, clock=lambda: NOW
        )
        asyncio.run(clients[key].start())
    client = clients[key]
    client.engine.calls.clear()
    client.engine.outputs.clear()
    return client


@st.composite
def outputs(draw, loaded):
    """What a model may sample: whole, broken and cut calls, open thinking, control tokens, any ids."""
    call = f'<tool_call>\n{{"name": "terminal", "arguments": {draw(compact)}}}\n</tool_call>'
    text = draw(
        st.one_of(
            texts(spell=True),
            st.just(call),
            st.just(f"{call}\n{call}"),
            st.just(call.replace("}", "", 1)),
            st.integers(0, len(call)).map(lambda cut: call[:cut]),
            texts().map(lambda thought: f"<think>\n{thought}\n</think>\n\n{call}"),
            texts().map(lambda thought: f"<think>\n{thought}"),
            st.just(""),
        )
    )
    ids = loaded.files.tokenizer.encode(text, add_special_tokens=False).ids
    ids += draw(st.lists(st.integers(0, loaded.encoder.vocab_size - 1), max_size=3))
    ends = sorted(loaded.report.end_ids)
    return ids + ([draw(st.sampled_from(ends))] if draw(st.booleans()) else [])


@pytest.mark.parametrize("history", ["append", "template"])
@pytest.mark.parametrize("name", WILD)
@many
@given(data=st.data())
def test_rows_hold_what_the_engine_saw_and_sampled_and_nothing_else(name, history, data):
    loaded = load(BY_NAME[name])
    client = client_for(BY_NAME[name], history)

    async def rollout():
        turns = []
        async with client.session("t", [Message.user(data.draw(texts(spell=True)))], [TOOL]) as session:
            new = []
            for _ in range(data.draw(st.integers(1, 4))):
                client.engine.outputs.append(data.draw(outputs(loaded)))
                sampling = SamplingParams(max_tokens=data.draw(st.sampled_from([1, 5, 500])))
                completion = await session.extend(new, sampling)
                turns.append(completion.turn)
                new = [
                    Message.tool(data.draw(texts(spell=True)), call_id=call.id, name=call.name)
                    for call in completion.message.tool_calls
                ] or [Message.user(data.draw(texts(spell=True)))]
        return turns

    turns = asyncio.run(rollout())
    rows = token_rows(turns)
    assert [list(turn.prompt_ids) for turn in turns] == [call.prompt_ids for call in client.engine.calls]
    if history == "append":
        assert [row.cause for row in rows] == ["start"]
    trained = [
        (row.turn_index[place], row.token_ids[place], row.logprobs[place])
        for row in rows
        for place, mask in enumerate(row.loss_mask)
        if mask
    ]
    sampled = [
        (index, token_id, scripted_logprob(len(turn.prompt_ids) + place, token_id))
        for index, turn in enumerate(turns)
        for place, token_id in enumerate(turn.output_ids)
    ]
    assert trained == sampled
    for row in rows:
        assert len(row.token_ids) == len(row.loss_mask) == len(row.logprobs) == len(row.turn_index)


@pytest.mark.parametrize("family", append_only(FAMILIES), ids=str)
@many
@given(data=st.data())
def test_append_only_prompts_equal_the_templates_rendering_of_everything(family, data):
    check_append_only(family, data)


@pytest.mark.parametrize("family", append_only(REAL_FAMILIES), ids=str)
@few
@given(data=st.data())
def test_append_only_prompts_equal_the_rendering_with_real_tokenizers(family, data):
    check_append_only(family, data)


def check_append_only(family, data):
    loaded = load(family)
    client = client_for(family)
    tools = [TOOL] if loaded.report.carries_tools and client.report.carries_tools else []
    parallel = loaded.report.conventions.parallel_calls
    opening, steps = data.draw(conversations(tools=bool(tools), parallel=parallel))

    def render(messages, generation_prompt=True):
        told = [client.report.conventions.tell(message, str) for message in messages]
        return client.bridge.template.render(told, tools, now=NOW, generation_prompt=generation_prompt)

    def encode(text):
        return loaded.files.tokenizer.encode(text, add_special_tokens=False).ids

    async def rollout():
        messages = list(opening)
        async with client.session("t", opening, tools) as session:
            new = []
            for step in [*steps, steps[0]]:
                prompt = render(messages)
                after = render([*messages, step.said, Message.user("next")])
                assert after.startswith(prompt), "this family never rewrites"
                end = client.report.seams["user"].end_token
                spoken = after[len(prompt) : after.index(end, len(prompt)) + len(end)]
                client.engine.outputs.append(encode(spoken))
                turn = (await session.extend(new, SamplingParams(max_tokens=4000))).turn
                assert list(turn.prompt_ids) == encode(prompt)
                new = step.new
                messages += [step.said, *step.new]

    asyncio.run(rollout())
