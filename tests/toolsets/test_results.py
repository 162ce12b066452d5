"""Long results: head and tail stay, small parts are never lost, and it says what is missing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from toolsets.results import as_text, cut, longest_text, preview


def test_a_long_text_keeps_head_and_tail_and_says_what_is_missing():
    text = cut("a" * 600 + "b" * 600, 1000)
    assert text == f"{'a' * 500}\n[200 characters left out]\n{'b' * 500}"


def test_only_the_longest_part_is_cut():
    content = {"output": "x" * 5000, "exit_code": 3, "error": "stopped after 5 s"}
    shown = json.loads(preview(content, 1000, "/tmp/whole"))
    assert (shown["exit_code"], shown["error"]) == (3, "stopped after 5 s")
    assert "the whole text is in /tmp/whole, read it in parts" in shown["output"]
    assert longest_text(content) == content["output"]


def test_escapes_do_not_make_it_longer_than_allowed():
    shown = preview({"output": "\x00" * 50_000}, 1000)
    assert len(shown) < 1300
    assert json.loads(shown)["output"].startswith("\x00")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.integers(100, 400))
def test_whatever_a_tool_returns_is_bounded(content, max_chars):
    shown = preview(content, max_chars)
    assert len(shown) <= max_chars + 300
    if len(as_text(content)) <= max_chars:
        assert shown == as_text(content)
