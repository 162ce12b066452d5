from tool_call_parsers import get_parser
from trajectories.hermes_codec import render_assistant
from trajectories.messages import Message, ToolCall


def test_a_marker_inside_a_string_is_data_and_siblings_of_a_bad_block_survive():
    text = (
        "hi\n"
        '<tool_call>\n{"name": "a", "arguments": {"x": "</tool_call>"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "a", "arguments": {"x": 1}\n</tool_call>\n'
        '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>'
    )

    message = get_parser("hermes").parse(text)

    assert message.content == "hi"
    assert [(call.name, call.arguments) for call in message.tool_calls] == [
        ("a", {"x": "</tool_call>"}),
        ("b", {}),
    ]
    assert [error.kind for error in message.errors] == ["invalid_json"]


def test_what_records_and_what_models_write_is_one_message():
    parser = get_parser("hermes")
    message = Message.assistant(reasoning="Hm.", tool_calls=[ToolCall("call_0", "now", {})])

    recorded = render_assistant(None, reasoning="Hm.", tool_calls=message.tool_calls)
    for text in (recorded, parser.render(message)):
        back = parser.parse(text)
        assert (back.content, back.reasoning) == (None, "Hm.")
        assert [call.name for call in back.tool_calls] == ["now"]
