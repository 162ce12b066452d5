"""What is set of a model reaches the client that reads its text."""

import json

import pytest

from environments.terminal_env import TerminalEnvConfig
from inference.fake_server import FakeServer
from inference.scripted_engine import ScriptedEngine
from rollouts.config import ManagedModel
from rollouts.connect import open_model
from rollouts.load_settings import load_settings
from tests.inference.sessions.driving import ASK, BY_NAME, CALL, SAMPLING, ids
from tests.inference.sessions.families import template_text, trained

TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}]


@pytest.fixture
def tokenizer_folder(tmp_path):
    trained(BY_NAME["qwen3"].tokenizer).save(str(tmp_path / "tokenizer.json"))
    config = {"chat_template": template_text("qwen3")}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


async def test_an_id_of_the_model_that_its_tokenizer_lacks_may_be_sampled(tokenizer_folder):
    """Models have more rows than their tokenizers have tokens, and no row has a probability of 0."""
    beyond = trained(BY_NAME["qwen3"].tokenizer).get_vocab_size()
    (tokenizer_folder / "config.json").write_text(json.dumps({"vocab_size": beyond + 1}))
    async with FakeServer(ScriptedEngine([[beyond, *ids("yes<|im_end|>", "qwen3")]])) as server:
        config = ManagedModel(kind="managed", base_url=server.url, tokenizer=str(tokenizer_folder))
        async with open_model(config) as client, client.session("t", ASK, TOOLS) as session:
            completion = await session.extend([], SAMPLING)
    assert completion.message.content == "yes"
    assert completion.turn.output_ids[0] == beyond


@pytest.mark.parametrize(
    ("setting", "found"),
    [("", ([], ["in_reasoning"])), ("  calls_in_open_reasoning: accept\n", (["terminal"], []))],
)
async def test_a_call_in_a_think_block_that_never_closed_is_what_the_settings_say(
    setting, found, tokenizer_folder, tmp_path
):
    thinking = ids(f"<think>\nNow:\n{CALL}<|im_end|>", "qwen3")
    async with FakeServer(ScriptedEngine([thinking])) as server:
        path = tmp_path / "run.yaml"
        path.write_text(
            f"model:\n  kind: managed\n  base_url: {server.url}\n  tokenizer: {tokenizer_folder}\n{setting}"
        )
        settings = load_settings(TerminalEnvConfig, "test", [], path)
        async with open_model(settings.model) as client, client.session("t", ASK, TOOLS) as session:
            message = (await session.extend([], SAMPLING)).message
    assert ([call.name for call in message.tool_calls], [error.kind for error in message.errors]) == found
