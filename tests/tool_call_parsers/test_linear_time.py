"""Double the input, at most double the work, on the repeats that make parsers scan again and again."""

import sys

import pytest

from tests.tool_call_parsers.spellings import SPELLINGS, TOOLS, Spelling
from tests.tool_call_parsers.work import Counter, counted_parsers
from tool_call_parsers import get_parser

SIZE = 300
"""Characters of the shorter text; a scan of the rest for every repeat then outweighs all else."""
CHUNK = 9
SLACK = 500
"""Work that does not depend on the length."""


@pytest.fixture(scope="module")
def counter():
    return Counter()


@pytest.fixture(scope="module")
def parsers(counter):
    with counted_parsers(counter) as package:
        yield {family: package.get_parser(family, TOOLS) for family in SPELLINGS}


def nasty_repeats(spelling: Spelling) -> list[str]:
    call = spelling.call("write_file", {"path": "a", "content": 'x "q" \\ y'})
    cut = call.partition("q")[0]
    opener, (think, think_end) = spelling.opener, spelling.think
    closers = ["</tool_call>", *spelling.markers, spelling.end_of_turn]
    return [
        *(opener, f"{opener}\n", f"{opener}{{", f"{opener}x", *closers),
        *(f"{opener}{closer}" for closer in closers),
        *('"', "\\", "{", "{\n", "[", "`", "```\n", "\n", f"`{opener}`"),
        f"x {think.strip()}{call}{think_end}",
        *(think, think_end, f"{think}{think_end}"),
        *(call, f"{call}\n", f"{spelling.bad}\n", spelling.turn([spelling.bad, call])),
        *(cut, f"{cut}\n", call[: len(call) // 3], f"{call[:-1]}\n"),
        call.replace("q", spelling.call("now", {})),
    ]


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a value"])
@pytest.mark.parametrize("family", SPELLINGS)
def test_twice_the_text_is_at_most_twice_the_work(parsers, counter, family, inside):
    spelling = SPELLINGS[family]
    before = spelling.call("write_file", {"content": "q"}).partition("q")[0] if inside else ""
    for repeat in dict.fromkeys(nasty_repeats(spelling)):
        assert_linear(parsers[family], counter, before, repeat)


@pytest.mark.parametrize("family", SPELLINGS)
def test_an_end_far_behind_many_openings_is_looked_for_once(parsers, counter, family):
    spelling = SPELLINGS[family]
    for end in dict.fromkeys((spelling.call("now", {})[-8:], *spelling.markers, spelling.end_of_turn)):
        assert_linear(parsers[family], counter, "", f"{spelling.opener}x ", end)


def assert_linear(parser, counter, before, repeat, after=""):
    def parsed(text):
        return counter.of(lambda: parser.parse(text, "stop"))

    def streamed(text):
        def work():
            stream = parser.stream()
            for at in range(0, len(text), CHUNK):
                stream.feed(text[at : at + CHUNK])
            stream.finish("length")

        return counter.of(work)

    times = max(20, SIZE // len(repeat))
    for measure in (parsed, streamed):
        once, twice = (measure(before + repeat * count + after) for count in (times, 2 * times))
        assert twice <= 2.2 * once + SLACK, (measure.__name__, repeat)


@pytest.mark.parametrize("family", SPELLINGS)
def test_a_text_that_grows_is_not_copied(family):
    """A string grows in place only while nothing else refers to it; copied each time, it costs n²."""
    content = "".join(f'line {number} of \'a "long" value\\n' for number in range(60))
    spelling = SPELLINGS[family]
    text = spelling.turn([spelling.call("write_file", {"path": "a", "content": content})])
    stream = get_parser(family, TOOLS).stream()
    alone = 2  # the source and the argument of getrefcount
    held = 0
    for char in text:
        stream.feed(char)
        held += sys.getrefcount(stream._source.text) > alone
    assert len(stream.finish().tool_calls) == 1
    assert held < len(text) / 50
