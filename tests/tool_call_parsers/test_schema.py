"""What a raw value stands for, by the schema of its argument."""

import pytest

from tool_call_parsers.schema import ToolSchemas

TEXT_OR_NULL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
SHARED = {"$ref": "#/$defs/count"}

FITTING = [
    ({"type": "string"}, "02139", "02139"),
    ({"type": "string"}, "null", "null"),
    ({"type": "integer"}, "7", 7),
    ({"type": "integer"}, "7.0", 7),
    ({"type": "integer"}, "9" * 40, int("9" * 40)),
    ({"type": "number"}, "7", 7),
    ({"type": "number"}, "-0.5e1", -5.0),
    ({"type": "boolean"}, "True", True),
    ({"type": ["integer", "null"]}, "None", None),
    ({"type": "integer", "nullable": True}, "null", None),
    (TEXT_OR_NULL, "null", None),
    (TEXT_OR_NULL, "None", "None"),
    ({"type": ["string", "integer"]}, "five", "five"),
    ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
    ({"type": "array"}, '\n["a"]\n', ["a"]),
    ({"enum": [1, 2]}, "2", 2),
    ({"const": "x"}, "x", "x"),
    (SHARED, "3", 3),
    ({"allOf": [SHARED]}, "3", 3),
    ({}, "5", "5"),
    (True, "5", "5"),
    (None, "true", "true"),
    ({"type": "any"}, "5", "5"),
    ({"type": "any", "nullable": True}, "null", None),
    ({"type": "any", "nullable": True}, "5", "5"),
    ({"$ref": "#/$defs/loop"}, "5", "5"),
    ({"$ref": "#/nowhere"}, "5", "5"),
]

NOT_FITTING = [
    ({"type": "integer"}, "7.5"),
    ({"type": "integer"}, "1_000"),
    ({"type": "integer"}, ""),
    ({"type": "number"}, "NaN"),
    ({"type": "number"}, "1e400"),
    ({"type": "boolean"}, "1"),
    ({"type": "null"}, "nothing"),
    ({"type": "array"}, "{}"),
    ({"type": "object"}, "{'a': 1}"),
    (SHARED, "x"),
]


def typed(schema, raw):
    parameters = {
        "properties": {} if schema is None else {"key": schema},
        "$defs": {"count": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    schemas = ToolSchemas([{"type": "function", "function": {"name": "tool", "parameters": parameters}}])
    return schemas.typed("tool", "key", raw)


@pytest.mark.parametrize(("schema", "raw", "value"), FITTING)
def test_the_schema_says_what_a_value_is(schema, raw, value):
    assert repr(typed(schema, raw)) == repr((value, None))


@pytest.mark.parametrize(("schema", "raw"), NOT_FITTING)
def test_what_does_not_fit_stays_text_and_is_told(schema, raw):
    value, mismatch = typed(schema, raw)
    assert value == raw
    assert mismatch is not None
    assert repr(raw) in mismatch
