"""Chat templates render as Hugging Face renders them."""

import json
from datetime import datetime

import pytest

from inference.chat_template import ChatTemplate, TemplateRefusal, shipped_template, template_source
from inference.model_files import load_model_files
from tests.inference.sessions.families import FAMILIES, REAL_FAMILIES, load, trained
from tests.inference.sessions.strategies import TOOL
from trajectories.errors import ConfigError
from trajectories.hermes_codec import render_assistant, render_tools
from trajectories.messages import Message, ToolCall

NOW = datetime(2024, 7, 26)
CALL = ToolCall("call00001", "terminal", {"command": 'echo "é" <b> \\n'})
CONVERSATION = [
    Message.system("Be brief. ü"),
    Message.user("  list <files> & 'quote'\n"),
    Message.assistant(tool_calls=[CALL]),
    Message.tool('{"a": "é"}\n', call_id=CALL.id, name=CALL.name),
    Message.assistant("There."),
    Message.user("Thanks"),
]


@pytest.mark.parametrize("family", [f for f in FAMILIES + REAL_FAMILIES if f.name != "smollm2"], ids=str)
def test_rendering_equals_that_of_transformers(family):
    from transformers.utils.chat_template_utils import render_jinja_template

    loaded = load(family)
    told = [loaded.report.conventions.tell(message, str) for message in CONVERSATION]
    rendered, _ = render_jinja_template(
        conversations=[told],
        tools=[TOOL],
        chat_template=loaded.template.source,
        add_generation_prompt=True,
        **loaded.template._variables,
    )
    ours = loaded.template.render(told, [TOOL], now=datetime.now())
    assert ours == (rendered[0] if isinstance(rendered, list) else rendered)


def test_generation_blocks_and_loop_controls_are_known():
    body = "{% if m.skip %}{% continue %}{% endif %}{% generation %}{{ m.x }}{% endgeneration %}"
    template = ChatTemplate("{% for m in messages %}" + body + "{% endfor %}")
    assert template.render([{"role": "user", "x": 1}, {"role": "user", "skip": True}], now=NOW) == "1"


def test_a_template_can_change_nothing_and_reach_nothing():
    for source in ("{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}"):
        with pytest.raises(TemplateRefusal):
            ChatTemplate(source).render([{"role": "user", "content": "x"}], now=NOW)


def test_broken_jinja_is_refused_with_its_line():
    with pytest.raises(ConfigError, match="line 2"):
        ChatTemplate("{# #}\n{% if %}")


def test_the_shipped_template_tells_tools_as_the_codec_does():
    template = ChatTemplate(shipped_template())
    text = template.render([{"role": "user", "content": "x"}], [TOOL], now=NOW)
    assert text == (
        f"<|im_start|>system\n{render_tools([TOOL])}<|im_end|>\n"
        "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "message",
    [
        Message.assistant("Hi"),
        Message.assistant(tool_calls=[CALL]),
        Message.assistant("Hi", tool_calls=[CALL, CALL]),
        Message.assistant("Hi", reasoning="hm"),
        Message.assistant("Hi", reasoning="", tool_calls=[CALL]),
        Message.assistant(reasoning="hm", tool_calls=[CALL]),
    ],
)
def test_the_shipped_template_writes_assistant_turns_as_the_codec_does(message):
    loaded = load(FAMILIES[0])
    told = loaded.report.conventions.tell(message, str)
    text = loaded.template.render([told], now=NOW, generation_prompt=False)
    codec = render_assistant(message.content, reasoning=message.reasoning, tool_calls=message.tool_calls)
    assert text == f"<|im_start|>assistant\n{codec}<|im_end|>\n"


def test_templates_are_named_or_given_by_path(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("mine")
    assert template_source(path) == "mine"
    assert template_source("hermes") == shipped_template()
    with pytest.raises(ConfigError, match="hermes"):
        template_source("nope")


def save(folder, **files):
    trained("chatml").save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_folder_gives_template_special_tokens_and_stop_ids(tmp_path):
    files = load_model_files(
        save(
            tmp_path,
            tokenizer_config={
                "eos_token": {"content": "<|im_end|>"},
                "bos_token": None,
                "add_bos_token": True,
                "chat_template": "own",
            },
            generation_config={"eos_token_id": [3, 4]},
            config={"text_config": {"vocab_size": 900}},
        )
    )
    assert files.chat_template == "own"
    assert files.vocab_size == 900
    assert files.special_tokens == {"eos_token": "<|im_end|>"}
    assert files.stop_ids == {3, 4, files.tokenizer.token_to_id("<|im_end|>")}


def test_of_several_templates_the_one_for_tools_is_taken_and_a_file_beats_them(tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    save(tmp_path, tokenizer_config={"chat_template": named})
    assert load_model_files(tmp_path).chat_template == "tools"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert load_model_files(tmp_path).chat_template == "file"


def test_a_folder_without_a_fast_tokenizer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        load_model_files(tmp_path)
