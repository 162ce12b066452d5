from tool_call_parsers import get_parser


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
