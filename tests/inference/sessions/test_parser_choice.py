"""The parser is found out from what the chat template writes."""

import logging

import pytest

from inference.managed import ManagedClient
from inference.model_files import ModelFiles
from inference.parser_choice import choose_parser
from inference.scripted_engine import ScriptedEngine
from tests.inference.sessions.driving import BY_NAME, client_of
from tests.inference.sessions.families import load, trained
from trajectories.errors import ConfigError

STRANGE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{%- for call in m.tool_calls or [] %}
I would like {{ call.function.name }} of {{ call.function.arguments | tojson }}, please.
{%- endfor %}<|im_end|>
{% endfor %}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"""


def logged(caplog):
    return [record.message for record in caplog.records if record.name.startswith("inference")]


@pytest.mark.parametrize(
    ("family", "parser"),
    [
        ("hermes", "hermes"),
        ("qwen2.5", "hermes"),
        ("qwen3", "hermes"),
        ("qwen3-no-thinking", "hermes"),
        ("llama3", "llama3_json"),
        ("deepseek-v3", "deepseek_v3"),
        ("deepseek-r1", "deepseek_v3"),
        ("mistral", "mistral"),
    ],
)
async def test_a_family_is_told_by_the_calls_its_template_writes(family, parser, caplog):
    with caplog.at_level(logging.INFO, "inference"):
        client = await client_of(family=family)
    assert client.parser == parser
    assert logged(caplog) == [f"parser: {parser}, found out from the model's chat template"]


async def test_without_tools_there_is_nothing_to_find_out(caplog):
    loaded = load(BY_NAME["smollm2"])
    with caplog.at_level(logging.INFO, "inference"):
        assert choose_parser(None, loaded.template, loaded.report) == "hermes"
    assert not logged(caplog)


async def test_a_format_nobody_knows_is_an_error_that_names_the_setting():
    client = ManagedClient(ScriptedEngine([]), ModelFiles(trained("chatml"), STRANGE))
    with pytest.raises(
        ConfigError, match=r"^parser: none reads .*I would like.*; name the model's, one of hermes"
    ):
        await client.start()


async def test_a_parser_that_was_chosen_is_used_and_doubted_where_it_cannot_be_right(caplog):
    client = await client_of(family="mistral", parser="hermes")
    assert client.parser == "hermes"
    assert logged(caplog) == ["parser: hermes does not read calls as the model's chat template writes them"]
    caplog.clear()
    assert (await client_of(family="qwen3", parser="qwen")).parser == "qwen"
    assert not logged(caplog)


async def test_a_parser_nobody_knows_is_an_error():
    with pytest.raises(ConfigError, match="no tool-call parser 'hermse'; did you mean hermes"):
        await client_of(parser="hermse")
