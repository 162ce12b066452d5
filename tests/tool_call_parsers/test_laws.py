"""The laws of the contract on text nobody wrote a case for: pieces of every family, cut and shuffled."""

import re
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tool_call_parsers.cases import GENERIC
from tests.tool_call_parsers.special_cases import SPECIAL
from tests.tool_call_parsers.spellings import SPELLINGS, TOOLS, Spelling
from tool_call_parsers import Delta, available_parsers, get_parser
from tool_call_parsers.registry import PARSERS as FAMILIES
from trajectories.messages import Message, ToolCall

PARSERS = {family: get_parser(family, TOOLS) for family in SPELLINGS}
each_family = pytest.mark.parametrize("family", SPELLINGS)
law = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
reasons = st.sampled_from(["stop", "length", "tool_calls"])

TEXTS = {
    family: [case.text for case in [*GENERIC, *SPECIAL] if case.family == family and len(case.text) < 1000]
    for family in SPELLINGS
}
TAG = re.compile(
    r"<[^<>\s]{1,40}>|\[[A-Z_/]+\]|```(?:json)?|functools|TOOL:|ANSWER:|[{}\[\]\"'`\\;,:=()]|\n|\w+|\s+|."
)


HARMONY_HEADER = re.compile(
    r"(?:<\|start\|>assistant|<\|channel\|>)"
    r"(?:(?!<\|message\|>|<\|end\|>|<\|call\|>|<\|return\|>|<\|start\|>assistant).)*<\|message\|>",
    re.S,
)
"""A marker with free text inside."""


def pieces(family: str) -> list[str]:
    return sorted({piece for text in TEXTS[family] for piece in TAG.findall(text)})


def bodies(spelling: Spelling) -> list[str]:
    """A turn without what it begins with."""
    turn = spelling.turn([spelling.call("now", {}), spelling.call("add", {"a": 1})])
    return sorted({turn.partition(marker)[2].lstrip() or turn for marker in markers(spelling)})


def fragments(family: str) -> st.SearchStrategy[str]:
    """Fragments of the family's texts in any order, and bodies behind any marker, arbitrary text between."""
    spelling = SPELLINGS[family]
    headed = st.builds(str.__add__, st.sampled_from(markers(spelling)), st.sampled_from(bodies(spelling)))
    cut = st.builds(
        lambda text, a, b: text[min(a, b) : max(a, b)],
        st.sampled_from(TEXTS[family]),
        st.integers(0, 400),
        st.integers(0, 400),
    )
    piece = st.sampled_from(pieces(family))
    return st.lists(piece | cut | headed | st.text(max_size=8), max_size=12).map("".join)


def feed(family: str, text: str, sizes: list[int], finish_reason: str, reasoning_open: bool):
    stream = PARSERS[family].stream(reasoning_open)
    events = []
    pos = turn = 0
    while pos < len(text):
        size = sizes[turn % len(sizes)]
        events += stream.feed(text[pos : pos + size])
        pos, turn = pos + size, turn + 1
    return stream.finish(finish_reason), events


def markers(spelling: Spelling) -> list[str]:
    known = [spelling.opener, spelling.end_of_turn, *spelling.think, *spelling.markers]
    form = PARSERS[spelling.family]._format
    for name in ("openers", "closers", "ends", "think"):
        known += getattr(form, name, None) or ()
    return sorted({marker.strip() for marker in known} - {""}, key=len, reverse=True)


def characters(text: str, without: re.Pattern[str]) -> Counter:
    return Counter(re.sub(r"\s", "", without.sub("", text)))


@each_family
@law
@given(data=st.data())
def test_any_text_parses_and_no_character_is_lost_or_made_up(family, data):
    text = data.draw(fragments(family))
    message = PARSERS[family].parse(text, data.draw(reasons), data.draw(st.booleans()))

    rest = list(text)
    for block in [*message.tool_calls, *message.errors]:
        start, end = block.span
        assert text[start:end] == block.raw
        if getattr(block, "kind", None) != "in_reasoning":
            rest[start:end] = ["\n"] * (end - start)
    rest, *told = "".join(rest), message.content or "", message.reasoning or ""
    if family == "gpt_oss":
        rest, *told = (HARMONY_HEADER.sub("", part) for part in (rest, *told))
    format_markers = re.compile("|".join(map(re.escape, markers(SPELLINGS[family]))))
    kept, found = (characters(part, format_markers) for part in ("\n".join(told), rest))
    assert all(found[char] >= count for char, count in kept.items()), "made up"
    assert found == kept, "lost"


@each_family
@law
@given(data=st.data())
def test_feeding_in_any_chunks_is_parsing(family, data):
    text, reason, opened = data.draw(fragments(family)), data.draw(reasons), data.draw(st.booleans())
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=6))
    whole = PARSERS[family].parse(text, reason, opened)

    streamed, events = feed(family, text, sizes, reason, opened)

    assert streamed == whole
    told = "".join(event.text for event in events if isinstance(event, Delta) and event.kind == "content")
    assert (whole.content or "").startswith(told) or whole.reasoning is not None


class NoAddedTokens:
    """A tokenizer that tells nothing: a parser that has one reads every block step by step."""

    def decode(self, token_ids):
        return ""

    def get_added_vocab(self):
        return {}


STEP_BY_STEP = {family: get_parser(family, TOOLS, NoAddedTokens()) for family in SPELLINGS}


@each_family
@law
@given(data=st.data())
def test_a_block_read_in_one_go_is_the_block_read_step_by_step(family, data):
    text, reason, opened = data.draw(fragments(family)), data.draw(reasons), data.draw(st.booleans())

    assert STEP_BY_STEP[family].parse(text, reason, opened) == PARSERS[family].parse(text, reason, opened)


@each_family
@law
@given(data=st.data())
def test_a_broken_sibling_and_a_cut_tail_leave_the_good_calls_alone(family, data):
    spelling = SPELLINGS[family]
    good = [("add", {"a": index}) for index in range(data.draw(st.integers(1, 4)))]
    spelled = [spelling.call(*call) for call in good]
    at = data.draw(st.integers(0, len(spelled)))
    text = spelling.turn([*spelled[:at], spelling.bad, *spelled[at:]])

    message = PARSERS[family].parse(text)
    cut = PARSERS[family].parse(text[: data.draw(st.integers(0, len(text)))], "length")

    assert [(call.name, call.arguments) for call in message.tool_calls] == good
    assert [error.kind for error in message.errors] == [spelling.bad_kind]
    assert [(call.name, call.arguments) for call in cut.tool_calls] == good[: len(cut.tool_calls)]


names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
words = st.text(st.characters(exclude_characters="<>[]`{}", exclude_categories=["Cs", "Cc"]), min_size=1)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@each_family
@law
@given(data=st.data())
def test_what_is_rendered_reads_back(family, data):
    parser = PARSERS[family]
    values_here = words if SPELLINGS[family].raw_values else values
    given_here = st.dictionaries(names, values_here, max_size=3)
    call = st.builds(lambda name, given: ToolCall("", name, given), names, given_here)
    text = st.none() | words.filter(
        lambda text: text.strip(" \t\r\n") and "TOOL" not in text and "ANSWER" not in text
    )
    breaks = st.sampled_from(["", "\n", "\n\n"])
    text = st.none() | st.builds(lambda *parts: "".join(parts), breaks, text.filter(bool), breaks)
    message = Message.assistant(
        data.draw(text), reasoning=data.draw(text), tool_calls=data.draw(st.lists(call, max_size=3))
    )

    back = parser.parse(parser.render(message))

    assert [(call.name, call.arguments) for call in back.tool_calls] == [
        (call.name, call.arguments) for call in message.tool_calls
    ]
    assert (back.content, back.reasoning) == (message.content, message.reasoning)
    assert {error.kind for error in back.errors} <= {"unknown_tool", "type_mismatch"}


def test_every_family_has_a_spelling_and_obeys_the_laws():
    assert set(SPELLINGS) == set(FAMILIES)
    assert set(SPELLINGS) <= set(available_parsers())
