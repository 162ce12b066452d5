"""The end and the content of a JSON value, whichever decoder reads it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_call_parsers.json_body import json_at_hand
from tool_call_parsers.source import Source

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
PIECES = [*'{}[]",:\\/ \n\t\r-+.0123eE', '"a"', '{"', '":', "null", "NaN", "\\ud83d", "\\u00e9", "\x00", "🙂"]
almost_json = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
DIFFER = [
    *("1e999", "-1e999", "NaN", "Infinity", "-0", "-0.0", "01", "1.", "1" * 30, "1" * 5000, "0.1e-400"),
    *('"\\ud83d"', '"\ud83d"', '"\\ud83d\\ude42"', '"\\x"', '"\n"', '"\x7f"'),
    *("[1,]", '{"b": 1, "b": 2}', "[" * 300 + "]" * 300, "[" * 99_999 + "]" * 99_999),
]


def read(text: str, *, ended: bool):
    source = Source()
    source.append(text)
    source.finish_reason = "stop" if ended else None
    return repr(json_at_hand(source, 0))


@given(values.map(lambda value: json.dumps({"a": value})) | almost_json.map('{{"a": {}}}'.format))
def test_a_text_that_ended_reads_as_one_that_goes_on(text):
    for rest in ("", "}", " }}", '\n{"b": 1}', "</tool_call>"):
        assert read(text + rest, ended=True) == read(text + rest, ended=False)


@pytest.mark.parametrize("value", DIFFER)
def test_what_decoders_differ_on_reads_the_same_in_both(value):
    text = f'{{"a": {value}}}'
    assert read(text, ended=True) == read(text, ended=False)
