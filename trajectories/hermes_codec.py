"""The canonical hermes text of tools, calls and results: what records are written in and ``hermes`` parses.

Pure functions from data to text. Exporter and parser share how tools, calls and results are written, because
two spellings of one format drift apart: a model trained on the one is then judged by the other. Between a
think block and a call without content a record has one newline where Qwen 3's template, and so
``Hermes.render``, has two: both read as the same message.
"""

import json
from collections.abc import Sequence
from typing import Any

from trajectories.messages import ToolCall, ToolSchema

TOOLS_PROMPT = """\
You may call one or more functions to help with what the user asks. Their signatures stand inside \
<tools></tools> tags as JSON:
<tools>
{tools}
</tools>
To call a function, write its name and its arguments as one JSON object inside <{tag}></{tag}> tags, \
one block per call:
<{tag}>
{{"name": "<function name>", "arguments": {{"<argument name>": <argument value>}}}}
</{tag}>
Each result comes back inside <tool_response></tool_response> tags."""


def render_tools(schemas: Sequence[ToolSchema], *, tag: str = "tool_call") -> str:
    """Write the part of a system prompt that tells the model its tools and how to call them."""
    return TOOLS_PROMPT.format(tools=json.dumps(list(schemas), ensure_ascii=False), tag=tag)


def render_call(name: str, arguments: dict[str, Any], *, tag: str = "tool_call") -> str:
    """Write one call as a block of its own."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<{tag}>\n{body}\n</{tag}>"


def render_assistant(
    content: str | None,
    *,
    reasoning: str | None = None,
    tool_calls: Sequence[ToolCall] = (),
) -> str:
    """Write an assistant turn; no think block where ``reasoning`` is None."""
    calls = [render_call(call.name, call.arguments) for call in tool_calls]
    answer = "\n".join([content, *calls] if content else calls)
    if reasoning is None:
        return answer
    return f"<think>\n{reasoning}\n</think>" + ("\n\n" if content else "\n" if calls else "") + answer


def render_result(name: str | None, content: str) -> str:
    """Write one tool result; content that is itself a JSON object or array stands in it as JSON."""
    body = json.dumps({"name": name, "content": _json_or_text(content)}, ensure_ascii=False)
    return f"<tool_response>\n{body}\n</tool_response>"


def _json_or_text(content: str) -> Any:
    if content.lstrip()[:1] not in {"{", "["}:
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content
