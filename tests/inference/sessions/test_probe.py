"""What the probe finds out about each family's template."""

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers

from inference.chat_template import ChatTemplate, TemplateRefusal
from inference.conventions import Conventions
from inference.encoding import TextEncoder
from inference.probe import probe
from tests.inference.sessions.families import FAMILIES, load, trained

REPORTS = {family.name: family for family in FAMILIES}


def report(name):
    return load(REPORTS[name]).report


def probed(source, kind="chatml"):
    return probe(ChatTemplate(source), TextEncoder(trained(kind)))


@pytest.mark.parametrize(
    ("name", "conventions"),
    [
        ("hermes", Conventions()),
        ("qwen2.5", Conventions(reasoning="inline")),
        ("qwen3", Conventions()),
        ("llama3", Conventions(reasoning="inline", parallel_calls=False)),
        ("deepseek-v3", Conventions(arguments="text", empty_content=None, reasoning="inline")),
        ("mistral", Conventions(reasoning="inline", short_call_ids=True)),
    ],
)
def test_how_messages_are_told(name, conventions):
    assert report(name).conventions == conventions
    assert report(name).carries_tools


@pytest.mark.parametrize(
    ("name", "kinds", "end"),
    [
        ("hermes", {"user", "tool"}, "<|im_end|>"),
        ("smollm2", {"user"}, "<|im_end|>"),
        ("llama3", {"user", "tool"}, "<|eot_id|>"),
        ("deepseek-r1", {"user", "tool"}, "<｜end▁of▁sentence｜>"),
        ("mistral", {"user", "tool"}, "</s>"),
    ],
)
def test_where_bridges_begin(name, kinds, end):
    assert set(report(name).seams) == kinds
    assert {seam.end_token for seam in report(name).seams.values()} == {end}
    assert not report(name).unsafe


@pytest.mark.parametrize(
    ("name", "rewrites"),
    [
        ("hermes", {}),
        ("qwen2.5", {}),
        ("qwen3", {"user": "reasoning"}),
        ("qwen3-no-thinking", {"user": "prompt", "tool": "prompt"}),
        ("deepseek-r1", {"user": "prompt", "tool": "prompt"}),
        ("mistral", {"user": "prompt", "tool": "reasoning"}),
    ],
)
def test_what_is_rewritten(name, rewrites):
    assert report(name).rewrites == rewrites


def test_mistrals_bridge_to_a_user_holds_tools_and_system_message():
    seam = report("mistral").seams["user"]
    assert seam.needs_tools
    assert seam.needs_system
    seam = report("hermes").seams["user"]
    assert not seam.needs_tools
    assert not seam.needs_system


def test_smollm2s_own_template_carries_no_tools():
    assert not report("smollm2").carries_tools
    assert "named SmolLM" in report("smollm2").preamble


def test_what_becomes_of_content():
    assert report("llama3").content == {
        "system": "trimmed",
        "user": "trimmed",
        "assistant": "trimmed",
        "tool": "json",
    }
    assert report("mistral").content["tool"] == "json"
    assert set(report("qwen3").content.values()) == {"verbatim"}


def test_bos_dates_and_open_reasoning():
    assert report("llama3").bos == "<|begin_of_text|>"
    assert report("llama3").writes_date
    assert report("hermes").bos is None
    assert not report("hermes").writes_date
    assert report("deepseek-r1").opens_reasoning
    assert not report("qwen3-no-thinking").opens_reasoning


def test_a_template_whose_turns_end_in_text_has_no_safe_bridge():
    found = probed("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ")
    assert found.seams == {}
    assert "no control token" in found.unsafe["user"]


def test_a_template_that_forgets_what_was_said_has_no_safe_bridge():
    kept = "{% if m.role == 'user' or loop.last %}{{ m.content }}<|im_end|>{% endif %}"
    source = "{% for m in messages %}" + kept + "{% endfor %}"
    assert "drops the assistant message" in probed(source).unsafe["user"]


MESSAGE = "{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}"
CALL = "{{ '<tool_call>' + call.function|tojson + '</tool_call>' }}"
CALLS = "{% for call in m.tool_calls or [] %}" + CALL + "{% endfor %}"
END = "{{ '<|im_end|>\n' }}"


PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def with_tools(message, prompt=PROMPT):
    """Return a template that writes its tools, then each message like this."""
    return f"{{{{ tools|tojson if tools }}}}{{% for m in messages %}}{message}{{% endfor %}}{prompt}"


def test_a_template_that_counts_its_messages_has_no_safe_bridge():
    found = probed(with_tools("{{ loop.index }}" + MESSAGE + CALLS + END), "qwen")
    assert {*found.unsafe.values()} == {"what it writes depends on what was said before"}


def test_a_template_that_repeats_the_call_beside_its_result_has_no_safe_bridge():
    echo = "{% if m.role == 'tool' %}{{ messages[loop.index0 - 1].tool_calls|tojson }}{% endif %}"
    found = probed(with_tools(echo + MESSAGE + CALLS + END), "qwen")
    assert "repeats" in found.unsafe["tool"]
    assert found.seams.keys() == {"user"}


def test_the_end_of_one_call_is_not_the_end_of_a_message_with_two():
    found = probed(with_tools(MESSAGE + CALLS), "qwen")
    assert "behind </tool_call> it repeats, or goes on with" in found.unsafe["tool"]
    assert found.end_ids == set(), "which would end a turn after its first call"


def test_a_prompt_that_the_template_writes_unasked_is_no_end_of_a_message():
    found = probed(with_tools(MESSAGE + CALLS + END, "<|im_start|>assistant\n"), "qwen")
    assert {kind: seam.end_token for kind, seam in found.seams.items()} == {
        "user": "<|im_end|>",
        "tool": "<|im_end|>",
    }


def test_an_end_in_last_place_only_is_none_where_the_conversation_goes_on():
    last = "{% if loop.last %}<|endoftext|>{% else %}" + END + "{% endif %}"
    found = probed(with_tools(MESSAGE + CALLS + last, ""), "qwen")
    assert {*found.unsafe.values()} == {"<|endoftext|> ends an assistant message in last place only"}


def test_results_that_a_template_drops_later_are_history_it_rewrites():
    last = "{% set last = messages | selectattr('role', 'equalto', 'user') | list | last %}"
    dropped = "{% if m.role == 'tool' and last != messages[0] %}(old){% else %}" + MESSAGE + "{% endif %}"
    found = probed(last + with_tools(dropped + CALLS + END), "qwen")
    assert found.carries_tools
    assert found.rewrites == {"user": "prompt"}


def test_an_end_that_is_no_token_where_it_stands_is_not_safe():
    """As where it is found in normalized text only, and normalizing puts a space before it."""
    tokenizer = Tokenizer(models.BPE(trained("mistral").get_vocab(), [], byte_fallback=True))
    tokenizer.normalizer = normalizers.Prepend("▁")
    tokenizer.add_special_tokens([AddedToken("<|eot|>", normalized=True)])
    source = "{% for m in messages %}{{ m.content }}<|eot|>{{ m.role }}{% endfor %}"
    found = probe(ChatTemplate(source), TextEncoder(tokenizer))
    assert "does not always keep <|eot|> apart" in found.unsafe["user"]


def with_token(text, **flags):
    tokenizer = Tokenizer.from_str(trained("chatml").to_str())
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, **flags)])
    return TextEncoder(tokenizer)


def test_an_end_that_swallows_the_space_around_it_is_safe():
    source = "{% for m in messages %}{{ m.content }} <|eats|> \n {{ m.role }}{% endfor %}"
    found = probe(ChatTemplate(source), with_token("<|eats|>", lstrip=True, rstrip=True))
    assert found.seams["user"].end_token == "<|eats|>"


def test_an_end_that_is_no_token_beside_a_word_is_not_safe():
    source = "{% for m in messages %}{{ m.content }} END{{ m.role }}{% endfor %}"
    found = probe(ChatTemplate(source), with_token("END", single_word=True))
    assert "does not always keep END apart" in found.unsafe["user"]


def test_a_template_that_refuses_even_a_question_is_no_template():
    with pytest.raises(TemplateRefusal, match="never"):
        probed("{{ raise_exception('never') }}")


def test_the_report_reads_as_a_list():
    text = str(report("mistral"))
    assert "tools: rendered; arguments as object, reasoning inline, parallel calls, call ids of nine" in text
    assert "bridge to user: safe, after </s>, holds the tools, holds the system message" in text
    assert "before user messages it rewrites the prompt" in text
    assert "writes the date" in str(report("llama3"))
    assert "UNSAFE" in str(probed("{% for m in messages %}{{ m.content }}{% endfor %}"))
