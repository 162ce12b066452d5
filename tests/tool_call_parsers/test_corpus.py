import random

import pytest

from tests.tool_call_parsers.cases import GENERIC, Case, write
from tests.tool_call_parsers.special_cases import SPECIAL
from tests.tool_call_parsers.spellings import SPELLINGS, TOOLS
from tool_call_parsers import get_parser
from trajectories.messages import ToolCall

CASES = [*GENERIC, *SPECIAL]
PARSERS = {family: get_parser(family, TOOLS) for family in SPELLINGS}


def parse(case: Case, text: str | None = None, finish_reason: str | None = None):
    text = case.text if text is None else text
    return PARSERS[case.family].parse(text, finish_reason or case.finish_reason, case.reasoning_open)


def calls(message):
    return [(call.name, call.arguments) for call in message.tool_calls]


def streamed(case: Case, sizes):
    stream = PARSERS[case.family].stream(case.reasoning_open)
    pos = 0
    while pos < len(case.text):
        size = next(sizes)
        stream.feed(case.text[pos : pos + size])
        pos += size
    return stream.finish(case.finish_reason)


def always(size):
    while True:
        yield size


def at_random(seed):
    rng = random.Random(seed)
    while True:
        yield rng.choice([0, 1, 2, 3, 5, 8, 40])


each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.family}: {case.name}")
each_case_without_rewind = pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.valid and case.prefix_reasons],
    ids=lambda case: f"{case.family}: {case.name}",
)
"""Those in which nothing that follows makes drafts of calls."""
each_valid_case = pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.valid],
    ids=lambda case: f"{case.family}: {case.name}",
)


@each_case
def test_a_case_reads_as_it_should(case):
    message = parse(case)

    assert (calls(message), [error.kind for error in message.errors]) == (case.calls, case.errors)
    assert (message.content, message.reasoning) == (case.content, case.reasoning)


@each_case
def test_chunks_of_any_size_read_the_same(case):
    whole = parse(case)

    for sizes in (always(1), always(3), always(7), at_random(0)):
        assert streamed(case, sizes) == whole


@each_valid_case
def test_a_prefix_never_holds_a_call_that_the_whole_does_not(case):
    for end in range(len(case.text)):
        for reason in case.prefix_reasons:
            found = calls(parse(case, case.text[:end], reason))
            assert found == case.calls[: len(found)], case.text[:end]


@each_case_without_rewind
def test_no_prefix_reports_a_call_that_the_whole_does_not_hold(case):
    stream = PARSERS[case.family].stream(case.reasoning_open)
    found = []
    for character in case.text:
        found += [event for event in stream.feed(character) if isinstance(event, ToolCall)]
    reported = [(call.name, call.arguments) for call in found]
    assert reported == case.calls[: len(found)]
    assert [(call.name, call.arguments) for call in stream.finish().tool_calls][: len(found)] == reported


@pytest.mark.parametrize("family", SPELLINGS)
def test_a_cut_call_is_unclosed_wherever_it_was_cut(family):
    spelling = SPELLINGS[family]
    text = spelling.turn([spelling.call(*write("x y"))])
    for end in range(len(text)):
        kinds = {error.kind for error in PARSERS[family].parse(text[:end], "length").errors}
        assert kinds <= {"unclosed"}, text[:end]


BARE = {"pythonic", "llama4_pythonic", "llama3_json", "json", "react"}
"""Families whose calls have no marker of their own."""


@pytest.mark.parametrize("family", [family for family in SPELLINGS if family not in BARE])
def test_quoted_calls_are_no_calls_wherever_they_were_cut(family):
    spelling = SPELLINGS[family]
    text = 'The form is "' + spelling.turn([spelling.call("now", {}), spelling.call("now", {})])
    for end in range(1, len(text) + 1):
        message = PARSERS[family].parse(text[:end], "length")
        assert (message.content, message.tool_calls, message.errors) == (text[:end], [], [])


@each_case
def test_spans_are_where_the_raw_text_stands(case):
    message = parse(case)

    for block in [*message.tool_calls, *message.errors]:
        assert case.text[slice(*block.span)] == block.raw
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)


LARGE_CORPUS = {"hermes", "qwen3_coder", "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4"}


@pytest.mark.parametrize("family", SPELLINGS)
def test_every_family_has_its_corpus(family):
    assert sum(case.family == family for case in CASES) >= (40 if family in LARGE_CORPUS else 15)
