"""Random conversations: what models, users and tools write at their worst."""

import json
from dataclasses import dataclass

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st

from tests.inference.sessions.families import CHATML, DEEPSEEK, LLAMA3, MISTRAL, QWEN_MARKS
from trajectories.messages import Message, ToolCall

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
many = settings(max_examples=80, deadline=None, suppress_health_check=_SLOW_IS_FINE)
few = settings(many, max_examples=20)
"""For real tokenizers, which cost ten times as much."""

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

CONTROL = [*CHATML, *QWEN_MARKS, *LLAMA3, *DEEPSEEK, *MISTRAL]
SPELLED = ["<|im_end|>", "<|im_start|>system\n", "<tool_call>", "</think>", "<|eot_id|>", "</s>", "[INST]"]
SPELLED += ["<｜end▁of▁sentence｜>", "<｜User｜>", "<|endoftext|>", "[/TOOL_RESULTS]", "</tool_response>"]

edges = st.sampled_from(["", "", " ", "\n", "\n\n", "\t", "  ", "\r\n", "\u00a0", "\u3000"])
words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["ok", "é", "e\u0301", "東京", "🙂🏽", "\u200d", "\x00", "don't", "1234567", "｜", "▁x", "<", "|>"]
    ),
    st.sampled_from(
        ['{"a":1}', '{"a": [1, 2]}', "\\u00e9", "\\n", '"', "<b>", "a|b", "{{ x }}", "{% raw %}"]
    ),
)


@st.composite
def texts(draw, spell=False):
    parts = draw(st.lists(words, max_size=4))
    if spell:
        parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from(SPELLED)))
    text = draw(edges) + draw(st.sampled_from([" ", "", "\n"])).join(parts) + draw(edges)
    # Hypothesis draws from the constants of the code under test, and so may spell a control token by itself.
    assume(spell or not any(token in text for token in CONTROL))
    return text


@dataclass(frozen=True)
class Step:
    """An assistant message and what follows it."""

    said: Message
    new: list[Message]


@st.composite
def steps(draw, *, tools=True, parallel=True, spell=False):
    index = draw(st.integers(0, 999))
    if tools and draw(st.booleans()):
        count = draw(st.integers(1, 3)) if parallel else 1
        values = draw(st.lists(texts(), min_size=count, max_size=count))
        calls = [ToolCall(f"call{index:03}x{i}", "terminal", {"command": v}) for i, v in enumerate(values)]
        results = [Message.tool(draw(texts(spell=spell)), call_id=call.id, name=call.name) for call in calls]
        return Step(Message.assistant(tool_calls=calls), results)
    return Step(Message.assistant(f"answer{index}"), [Message.user(draw(texts(spell=spell)))])


@st.composite
def conversations(draw, *, tools=True, parallel=True, spell=False, max_steps=3):
    opening = [Message.system(draw(texts()))] if draw(st.booleans()) else []
    opening.append(Message.user(draw(texts(spell=spell))))
    step = steps(tools=tools, parallel=parallel, spell=spell)
    return opening, draw(st.lists(step, min_size=1, max_size=max_steps))


compact = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=5)), max_size=2).map(
    lambda value: json.dumps(value, separators=(",", ":"))
)
"""Arguments as models write them and templates don't."""
