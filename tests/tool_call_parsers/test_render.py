"""``render`` writes what the model's own chat template, or the encoder its makers publish, writes.

Templates are those that come with tokenizers in public registries (``fetch_tokenizers.py``), encoders those
that come with vLLM. There is neither for LongCat, Qwen3-Coder, DeepSeek V3.1, Llama 4, OLMo 3, GLM, Kimi K2,
MiniMax, Granite, Phi-4-mini, Hunyuan and FunctionGemma; ``xml``, ``json`` and ``react`` are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from inference.chat_template import ChatTemplate, TemplateRefusal
from inference.encoding import TextEncoder
from inference.model_files import load_model_files
from inference.probe import probe
from tests.inference.sessions.families import FETCH, REAL
from tests.real_parts import unavailable
from tests.tool_call_parsers.messages import MESSAGES
from tests.tool_call_parsers.spellings import TOOLS
from tool_call_parsers import get_parser
from trajectories.messages import Message

HELPER = Path(__file__).with_name("reference_encoders.py")
NOW = datetime(2026, 1, 1)


def unchanged(text: str) -> str:
    return text


@dataclass(frozen=True)
class Writer:
    """A template or an encoder, and where it writes something else than ``render`` does."""

    name: str
    family: str
    deviations: dict[str, str] = field(default_factory=dict)
    """The messages it writes differently, each with the reason."""
    message: Callable[[Message], Message] = unchanged
    """What ``render`` is given for a message that the writer is given."""
    mended: Callable[[str], str] = unchanged
    """What of its text is not the model's turn, or its own mistake, put right."""

    def __str__(self):
        return self.name


def with_think_block(message: Message) -> Message:
    return replace(message, reasoning=message.reasoning or "")


def without_native_ids(message: Message) -> Message:
    calls = [replace(call, id=f"call_{at}") for at, call in enumerate(message.tool_calls)]
    return replace(message, tool_calls=calls)


def one_section_end(text: str) -> str:
    end = "<｜tool▁calls▁end｜>"
    return text.replace(end, "").replace("<｜end▁of▁sentence｜>", "") + end


def spaced(text: str) -> str:
    return text.replace("[TOOL_CALLS][", "[TOOL_CALLS] [")


NO_REASONING = "it knows no reasoning"
TEMPLATES = [
    Writer("qwen2.5", "hermes", {"reasoning and a call": NO_REASONING}),
    Writer("qwen3", "hermes", message=with_think_block),
    Writer(
        "llama3.2",
        "llama3_json",
        {
            "three calls": "it refuses several calls",
            "content and calls": "it refuses several calls",
            "reasoning and a call": NO_REASONING,
            "all": "it drops the content of a turn with a call",
        },
    ),
    Writer(
        "deepseek-v3",
        "deepseek_v3",
        {
            "content and calls": "it drops the calls of a turn with content",
            "reasoning and a call": NO_REASONING,
            "all": "it drops the calls of a turn with content",
        },
        mended=one_section_end,
    ),
    Writer(
        "mistral-nemo",
        "mistral",
        {
            "content and calls": "it drops the content of a turn with calls",
            "reasoning and a call": NO_REASONING,
            "all": "it drops the content of a turn with calls",
        },
        mended=spaced,
    ),
]  # fmt: skip
"""DeepSeek's ends the section after the second call and each one that follows, and never after an only call.
Mistral's blank after the marker is SentencePiece's: tekken, Nemo's tokenizer, has none."""

REFUSED = {
    name: "it refuses content beside calls" for name in ("content and calls", "reasoning and a call", "all")
}
ENCODERS = [
    Writer("deepseek_v32", "deepseek_v32"),
    Writer("deepseek_v4", "deepseek_v4"),
    Writer("mistral v3", "mistral", REFUSED),
    Writer("mistral v3 tekken", "mistral", REFUSED, mended=spaced),
    Writer("mistral v11", "mistral_v11", {"reasoning and a call": NO_REASONING, "all": NO_REASONING}),
    Writer("mistral v13", "mistral_v11", message=without_native_ids),
    Writer("harmony", "gpt_oss", mended=lambda text: text.removeprefix("<|start|>assistant")),
]


def differing(writer: Writer, texts: dict[str, str | None]) -> set[str]:
    """Return the messages not written as by ``render``; the others must read back, too."""
    parser = get_parser(writer.family, TOOLS)
    found: set[str] = set()
    for name, text in texts.items():
        message = writer.message(MESSAGES[name])
        if text is None or writer.mended(text) != parser.render(message):
            found.add(name)
        else:
            assert said(parser.parse(writer.mended(text))) == said(message), name
    return found


def said(message: Message):
    return message.content, message.reasoning, [(call.name, call.arguments) for call in message.tool_calls]


@pytest.mark.parametrize("writer", TEMPLATES, ids=str)
def test_it_is_what_the_models_own_template_writes(writer):
    if not (REAL / writer.name / "tokenizer.json").is_file():
        unavailable(f"{REAL / writer.name} is missing; run: python {FETCH}")
    files = load_model_files(REAL / writer.name)
    assert files.chat_template
    template = ChatTemplate(files.chat_template, variables=files.special_tokens)
    report = probe(template, TextEncoder(files.tokenizer))
    ends = [files.tokenizer.id_to_token(end) for end in report.end_ids]
    question = {"role": "user", "content": "question"}

    def written(message: Message) -> str | None:
        told = report.conventions.tell(message, unchanged)
        prompt = template.render([question], TOOLS, now=NOW)
        try:
            text = template.render([question, told], TOOLS, now=NOW, generation_prompt=False)
        except TemplateRefusal:
            return None
        assert text.startswith(prompt)
        answer = text.removeprefix(prompt).removesuffix("\n")
        return next((answer.removesuffix(end) for end in ends if answer.endswith(end)), answer)

    texts = {name: written(message) for name, message in MESSAGES.items()}

    assert differing(writer, texts) == set(writer.deviations)


@pytest.fixture(scope="module")
def encoded(ask_in_vllm):
    plain = {
        name: {
            "content": message.content,
            "reasoning": message.reasoning,
            "calls": [
                {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
            ],
        }
        for name, message in MESSAGES.items()
    }
    return ask_in_vllm(HELPER, plain)


@pytest.mark.vllm
@pytest.mark.parametrize("writer", ENCODERS, ids=str)
def test_it_is_what_the_makers_encoder_writes(writer, encoded):
    texts = {name: answer.get("text") for name, answer in encoded[writer.name].items()}

    assert differing(writer, texts) == set(writer.deviations)
