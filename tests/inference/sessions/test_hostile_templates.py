"""Whatever a template does, a bridge that the probe calls safe is the template's own rendering."""

from datetime import datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.bridge import Bridge, NoBridge
from inference.chat_template import ChatTemplate
from inference.encoding import TextEncoder
from inference.probe import probe
from tests.inference.sessions.families import trained
from tests.inference.sessions.strategies import TOOL, many
from trajectories.messages import Message, ToolCall

NOW = datetime(2026, 7, 8)
TOKENS = {
    "qwen": ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    "llama3": ("<|start_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    "mistral": ("[INST]", "</s>", "[/INST]"),
}
"""By tokenizer: what begins a message, what ends it, and another."""

BEFORE_ALL = ["", "OTHER", "You are.\n", "{{ strftime_now('%d %b') }}", "{{ messages | length }} messages"]
BEFORE_EACH = [
    *[""] * 4,
    "{{ loop.index }}",
    "{% if loop.first %}first{% endif %}",
    "{% if loop.last %}last{% endif %}",
    "{% if m.role == 'user' and loop.last %}{{ tools | tojson if tools }}{% endif %}",
    "{% if m.role == 'tool' and loop.index0 < messages | length - 3 %}old{% endif %}",
    "{% if m.role == 'user' %}{% set seen.users = seen.users + 1 %}{{ seen.users }}{% endif %}",
    "{% if m.role == 'user' and messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}",
]
BEFORE_CONTENT = [
    *[""] * 4,
    "{{ m.tool_call_id if m.role == 'tool' }}",
    "{{ m.name if m.role == 'tool' }}",
    "{% if loop.index0 and m.role != 'assistant' %}re: {{ messages[loop.index0 - 1].content }}{% endif %}",
    "{% if m.role == 'tool' %}{{ messages[loop.index0 - 1].tool_calls | tojson }}{% endif %}",
]
FILTERS = ["", "", " | trim", " | tojson", " | upper"]
BEFORE_CALL, AFTER_CALL = ["CALL ", "<tool_call>", "[TOOL_CALLS]"], ["", "</tool_call>", "END"]
AFTER_EACH = [
    *["END{SPACE}"] * 4,
    "{SPACE}",
    "{% if m.role == 'assistant' %}END{% endif %}{SPACE}",
    "{% if loop.last %}OTHER{% else %}END{SPACE}{% endif %}",
    "{% if not loop.last %}END{SPACE}{% endif %}",
    "{% if m.tool_calls %}OTHER{% else %}END{% endif %}{SPACE}",
]
AFTER_ALL = [
    *["{% if add_generation_prompt %}STARTassistant{SPACE}{% endif %}"] * 3,
    "STARTassistant{SPACE}",
    "{% if messages[-1].role != 'tool' %}STARTassistant{SPACE}{% endif %}",
    "",
]


@st.composite
def templates(draw, tokens):
    def one(choices):
        return draw(st.sampled_from(choices))

    source = "".join(
        [
            "{% set seen = namespace(users=0) %}",
            one(BEFORE_ALL),
            "{{ tools | tojson if tools }}{% for m in messages %}",
            one(BEFORE_EACH),
            "START{{ m.role }}{SPACE}",
            one(BEFORE_CONTENT),
            "{{ (m.content or '')" + one(FILTERS) + " }}",
            "{% for c in m.tool_calls or [] %}"
            + one(BEFORE_CALL)
            + "{{ c.function | tojson }}"
            + one(AFTER_CALL),
            "{% endfor %}" + one(AFTER_EACH) + "{% endfor %}" + one(AFTER_ALL),
        ]
    )
    names = dict(zip(("START", "END", "OTHER"), tokens, strict=True))
    for name, text in {**names, "{SPACE}": one(["{{ '\\n' }}", "{{ ' ' }}", ""])}.items():
        source = source.replace(name, text)
    return source


@settings(
    many, max_examples=200, suppress_health_check=[*many.suppress_health_check, HealthCheck.filter_too_much]
)
@given(data=st.data())
def test_a_bridge_is_the_templates_own_rendering_or_is_called_unsafe(data):
    kind = data.draw(st.sampled_from([*TOKENS]))
    encoder = TextEncoder(trained(kind))
    template = ChatTemplate(data.draw(templates(TOKENS[kind])))
    report = probe(template, encoder)
    bridge = Bridge(template, encoder, report.conventions)
    tools = [TOOL] if report.carries_tools else []
    opening = data.draw(st.sampled_from([[], [Message.system("Be brief.")]]))
    messages = [*opening, Message.user("Hello.")]
    system = opening[0] if opening else None
    for step in range(3):
        after = data.draw(st.sampled_from([*report.seams])) if report.seams else "user"
        messages += [said_before(after, step), *following(after, step)]
        seam = report.seams.get(after)
        if seam is None:
            return
        try:
            between = bridge.between(
                following(after, step), tools, seam, now=NOW, ended_by=seam.end_id, system=system
            )
        except NoBridge:
            continue
        told = [report.conventions.tell(message, str) for message in messages]
        whole = encoder.encode(template.render(told, tools, now=NOW))
        assert whole[-len(between) - 1 :] == [seam.end_id, *between]


def said_before(after, step):
    if after == "user":
        return Message.assistant(f"Answer {step}.")
    return Message.assistant(tool_calls=[ToolCall(f"call{step}", "terminal", {"command": f"ls {step}"})])


def following(after, step):
    if after == "user":
        return [Message.user(f" And {step}? ")]
    return [Message.tool(f"result {step}", call_id=f"call{step}", name="terminal")]
