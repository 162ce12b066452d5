"""Messages that every model's own template or encoder is asked to write."""

from trajectories.messages import Message, ToolCall

MIXED = {"path": "a b/ç.md", "content": 'x = {"k": "v"}\n\tif a < b & c:  # 漢字 🙂 \\n </tag> \'q\'\n'}
TYPED = {"a": -7, "b": 1.5, "flag": True, "note": None, "items": [1, [2, {"x": "y"}], []], "options": {}}


def call(name: str, arguments: dict, index: int = 0) -> ToolCall:
    """Return a call with an id that Mistral accepts."""
    return ToolCall(f"abcdefgh{index}", name, arguments)


MESSAGES = {
    "one call": Message.assistant(tool_calls=[call("now", {})]),
    "text": Message.assistant(tool_calls=[call("write_file", MIXED)]),
    "types": Message.assistant(tool_calls=[call("add", TYPED)]),
    "three calls": Message.assistant(tool_calls=[call("add", {"a": at}, at) for at in range(3)]),
    "content and calls": Message.assistant(
        "Let me see.", tool_calls=[call("now", {}), call("add", TYPED, 1)]
    ),
    "reasoning and a call": Message.assistant(reasoning="Hm.\nYes.", tool_calls=[call("now", {})]),
    "all": Message.assistant("Let me see.", reasoning="Hm.", tool_calls=[call("now", {})]),
}
