"""What a session does where a template rewrites history, or gives no safe bridge."""

from dataclasses import replace
from datetime import datetime

import pytest

from inference.bridge import NoBridge
from inference.managed import ManagedClient
from inference.model_files import ModelFiles
from inference.scripted_engine import ScriptedEngine
from tests.inference.sessions.driving import ASK, BY_NAME, CALL, SAMPLING, client_of, ids, result, said
from tests.inference.sessions.families import load
from tests.inference.sessions.strategies import TOOL
from trajectories.errors import ConfigError
from trajectories.messages import Message
from trajectories.rows import token_rows
from trajectories.tokens import TokenPrefix

NOW = datetime(2026, 1, 2)
THOUGHT = "<think>\nhm\n</think>\n\nyes<|im_end|>"


async def turns_of(client, *more):
    async with client.session("t", ASK, [TOOL]) as session:
        return [(await session.extend(new, SAMPLING)).turn for new in ([], *more)]


async def test_append_keeps_the_reasoning_that_the_template_would_drop():
    client = await client_of(THOUGHT, "x<|im_end|>", family="qwen3", history="append")
    turns = await turns_of(client, [Message.user("more")])
    assert "hm" in said(turns[1].prompt_ids, "qwen3")
    assert [row.cause for row in token_rows(turns)] == ["start"]


async def test_template_drops_it_and_starts_a_row():
    client = await client_of(THOUGHT, "x<|im_end|>", family="qwen3", history="template")
    turns = await turns_of(client, [Message.user("more")])
    assert "hm" not in said(turns[1].prompt_ids, "qwen3")
    assert "yes" in said(turns[1].prompt_ids, "qwen3")
    assert [row.cause for row in token_rows(turns)] == ["start", "template"]


async def test_template_goes_on_with_the_row_where_nothing_is_rewritten():
    client = await client_of(
        f"<think>\nhm\n</think>\n\n{CALL}<|im_end|>", "x<|im_end|>", family="qwen3", history="template"
    )
    turns = await turns_of(client, [result()])
    assert "hm" in said(turns[1].prompt_ids, "qwen3")
    assert [row.cause for row in token_rows(turns)] == ["start"]


async def test_template_without_reasoning_has_nothing_to_rewrite():
    client = await client_of("yes<|im_end|>", "x<|im_end|>", family="qwen3", history="template")
    turns = await turns_of(client, [Message.user("more")])
    assert [row.cause for row in token_rows(turns)] == ["start"]


BROKEN = '<tool_call>\n{"name": terminal}\n</tool_call>'


async def test_a_malformed_call_is_rendered_again_in_the_models_own_tokens():
    client = await client_of(
        f"<think>\nhm\n</think>\n\n{BROKEN}<|im_end|>", "x<|im_end|>", family="qwen3", history="template"
    )
    turns = await turns_of(client, [Message.user("That was no JSON.")])
    assert turns[0].message.errors
    assert turns[1].row_cause == "template"
    expected = ids(f"<|im_start|>assistant\n{BROKEN}<|im_end|>\n<|im_start|>user\nThat was", "qwen3")
    assert holds(turns[1].prompt_ids, expected), "the reasoning is dropped, the markers are markers"


async def test_a_marker_that_the_model_spelled_out_stays_spelled_out():
    injected = spelled_out("<|im_end|>\n<|im_start|>system\n</think>")
    script = [[*ids("<think>hm</think>a", "qwen3"), *injected, *ids(f"b{BROKEN}<|im_end|>", "qwen3")]]
    client = await client_of(
        family="qwen3", history="template", script=[*script, ids("x<|im_end|>", "qwen3")]
    )
    turns = await turns_of(client, [Message.user("more")])
    assert turns[0].message.errors
    prompt = list(turns[1].prompt_ids)
    assert "a<|im_end|>\n<|im_start|>system\n</think>b<tool_call>" in said(prompt, "qwen3")
    assert "hm" not in said(prompt, "qwen3")
    control = load(BY_NAME["qwen3"]).encoder.control
    for token, spelled in {"<|im_end|>": 1, "<|im_start|>": 1, "</think>": 1, "<tool_call>": 0}.items():
        assert said(prompt, "qwen3").count(token) - prompt.count(control[token]) == spelled


def spelled_out(text):
    """Return ids that read as ``text`` and hold no control token."""
    return [token for letter in text for token in ids(letter, "qwen3")]


def holds(whole, part):
    return any(whole[start : start + len(part)] == part for start in range(len(whole)))


NO_END = """{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"""


async def test_without_a_safe_bridge_every_turn_starts_a_row():
    files = ModelFiles(load(BY_NAME["llama3"]).files.tokenizer, NO_END)
    engine = ScriptedEngine([ids("a\n", "llama3"), ids("b\n", "llama3")])
    client = ManagedClient(engine, files)
    await client.start()
    assert "no control token" in client.report.unsafe["user"]
    async with client.session("t", ASK, []) as session:
        turns = [(await session.extend(new, SAMPLING)).turn for new in ([], [Message.user("more")])]
    assert said(turns[1].prompt_ids, "llama3") == "user: question\nassistant: a\n\nuser: more\nassistant: "
    assert turns[1].row_cause == "template"
    assert [row.cause for row in token_rows(turns)] == ["start", "template"]


ROLES_END_TURNS = """{{ tools|tojson if tools }}{% for m in messages %}
{%- if m.role == 'assistant' %}<|im_start|>{% elif m.role == 'user' %}<|endoftext|>
{%- elif messages[loop.index0 - 1].role != 'tool' %}<tool_response>{% endif %}
{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>\n' + c.function|tojson + '\n</tool_call>' }}{% endfor %}
{%- endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"""


async def test_a_turn_that_ends_with_the_next_role_is_continued_though_there_is_no_bridge():
    """As GLM's, whose turns end with the token that begins a user's message or a result."""
    encoder = load(BY_NAME["qwen3"]).encoder
    ends = frozenset(encoder.control[token] for token in ("<|endoftext|>", "<tool_response>"))
    files = ModelFiles(load(BY_NAME["qwen3"]).files.tokenizer, ROLES_END_TURNS, stop_ids=ends)
    call = '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>'
    outputs = [call * 2 + "<tool_response>", "yes<|endoftext|>", "x"]
    engine = ScriptedEngine([ids(output, "qwen3") for output in outputs])
    client = ManagedClient(engine, files)
    await client.start()
    assert client.report.unsafe.keys() == {"user", "tool"}
    turns = await turns_of(client, [result("a"), result("b")], [Message.user("more")])
    assert len(turns[0].message.tool_calls) == 2, "its first call does not end the turn"
    assert [row.cause for row in token_rows(turns)] == ["start"]
    assert said(turns[2].prompt_ids, "qwen3").endswith(
        f"{call}{call}<tool_response>ab<|im_start|>yes<|endoftext|>more<|im_start|>"
    )


async def test_what_has_no_bridge_is_rendered_afresh():
    client = await client_of("yes<|im_end|>", "x<|im_end|>", family="qwen2.5")
    client.bridge.between = refuses
    turns = await turns_of(client, [Message.user("more")])
    assert "yes<|im_end|>\n<|im_start|>user\nmore" in said(turns[1].prompt_ids, "qwen2.5")


async def test_what_the_template_refuses_to_render_afresh_is_bridged():
    client = await client_of("yes</s>", "x</s>", family="mistral", history="template", parser="hermes")
    assert client.report.rewrites["user"] == "prompt"
    client.bridge.prompt, opening = refuses, client.bridge.prompt(ASK, [TOOL], now=NOW)
    async with client.session("t", ASK, [TOOL]) as session:
        session._ids, session._ended_by = TokenPrefix(opening), None
        turn = (await session.extend([Message.user("more")], SAMPLING)).turn
    assert turn.prompt_ids[: len(opening)] == opening


async def test_what_the_template_refuses_altogether_is_a_mistake_of_ours():
    client = await client_of("yes</s>", "x</s>", family="mistral")
    with pytest.raises(ConfigError, match="no role system"):
        await turns_of(client, [Message.system("more")])


def refuses(*_, **__):
    raise NoBridge("no")


@pytest.mark.parametrize("cause", ["subagent", "compaction"])
async def test_rows_of_conversations_beside_the_first_are_counted_by_cause(cause):
    client = await client_of("a<|im_end|>", "b<|im_end|>", "c<|im_end|>")
    async with client.session("t", ASK, []) as session:
        turns = [(await session.extend([], SAMPLING)).turn]
        async with client.session("other", [Message.user("aside")], []) as other:
            turns.append(replace((await other.extend([], SAMPLING)).turn, row_cause=cause))
            turns.append((await other.extend([Message.user("x")], SAMPLING)).turn)
        turns.append((await session.extend([Message.user("more")], SAMPLING)).turn)
    rows = token_rows(turns)
    assert [row.cause for row in rows] == ["start", cause]
    assert [sorted(set(row.turn_index)) for row in rows] == [[0, 3], [1, 2]], "the first row goes on"
    trained = sum(sum(row.loss_mask) for row in rows)
    assert trained == sum(len(turn.output_ids) for turn in turns)


async def test_a_roll_back_is_an_edit_of_history():
    client = await client_of("a<|im_end|>", "b<|im_end|>", "c<|im_end|>")
    async with client.session("t", ASK, []) as session:
        turns = [(await session.extend([], SAMPLING)).turn]
        before = session.fork()
        turns.append((await session.extend([Message.user("wrong")], SAMPLING)).turn)
        turns.append((await before.extend([Message.user("right")], SAMPLING)).turn)
    assert [row.cause for row in token_rows(turns)] == ["start", "history_edit"]
