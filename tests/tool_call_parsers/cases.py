"""The corpus that every family must read: each scenario spelled in each family's own syntax."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.tool_call_parsers.spellings import SPELLINGS, Spelling


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    text: str
    calls: list = field(default_factory=list)
    """Expected ``(name, arguments)``."""
    errors: list = field(default_factory=list)
    """Expected kinds."""
    content: str | None = None
    reasoning: str | None = None
    finish_reason: str = "stop"
    reasoning_open: bool = False
    prefix_reasons: tuple[str, ...] = ("length", "stop")
    """With which finish reasons no prefix may hold a call that the whole does not."""

    @property
    def valid(self) -> bool:
        return not self.errors and self.finish_reason == "stop"


DEEP: dict = {}
for _ in range(40):
    DEEP = {"in": [DEEP]}

VALUES = {
    "unicode": "naïve 漢字 🙂 \u202e",
    "crlf": "a\r\nb\rc\n",
    "blanks": "  x  ",
    "newlines": "\nx\n\n",
    "empty": "",
    "quotes": 'it\'s "quoted" \\n \\\\ `code`',
    "json_text": '{"name": "now", "arguments": {}}',
    "looks_like_a_number": "02139",
    "lone_surrogate": "x\ud83dy",
    "angle_brackets": "if a < b > c: <b>x</b>",
    "think_tags": "<think>no</think>",
}


def write(content: str) -> tuple[str, dict]:
    return "write_file", {"path": "a.md", "content": content}


NOW = ("now", {})


def generic_cases(spelling: Spelling) -> Iterator[Case]:
    """Yield the scenarios all families share."""

    def turn(*calls: tuple[str, dict]) -> str:
        return spelling.turn([spelling.call(*call) for call in calls])

    def case(name: str, text: str, **expected) -> Case:
        return Case(spelling.family, name, text, **expected)

    opener, closer = spelling.think
    simple = write("x = 1")
    yield case("one call", turn(simple), calls=[simple])
    yield case(
        "content before", spelling.text("Let me see.") + turn(simple), calls=[simple], content="Let me see."
    )
    yield case("three calls", turn(simple, NOW, write("y")), calls=[simple, NOW, write("y")])
    many = [("add", {"a": index}) for index in range(64)]
    yield case("64 calls", turn(*many), calls=many)
    yield case("no arguments", turn(NOW), calls=[NOW])
    for name, value in VALUES.items():
        yield case(f"value: {name}", turn(write(value), NOW), calls=[write(value), NOW])
    own = write(f"The marker {spelling.opener} opens, {spelling.end_of_turn} ends.")
    yield case("own markers in a value", turn(own, NOW), calls=[own, NOW])
    typed = ("add", {"a": 2**70, "b": 0.5, "flag": True, "items": [1, "x", None], "note": None, "zip": "1"})
    yield case("typed values", turn(typed), calls=[typed])
    yield case("deep nesting", turn(("add", {"options": DEEP})), calls=[("add", {"options": DEEP})])
    draft = f"I could call {turn(write('draft'))} but"
    yield case(
        "draft in a think block",
        f"{opener}{draft}{closer}{turn(simple)}",
        calls=[simple],
        reasoning=draft,
    )
    yield case(
        "draft in a think block of the prompt",
        f"{draft}{closer}{turn(simple)}",
        calls=[simple],
        reasoning=draft,
        reasoning_open=True,
    )
    yield case("empty think block", f"{opener}{closer}{turn(NOW)}", calls=[NOW], reasoning="")
    yield case("end of turn", turn(simple) + spelling.end_of_turn, calls=[simple])
    yield case("prose", "Nothing to call here.", content="Nothing to call here.")
    yield case("empty text", "")
    yield case("malformed alone", spelling.turn([spelling.bad]), errors=[spelling.bad_kind])
    good = spelling.call(*NOW)
    siblings = spelling.turn([good, spelling.bad, good])
    yield case("malformed among good ones", siblings, calls=[NOW, NOW], errors=[spelling.bad_kind])
    unknown = ("rm", {"path": "x"})
    yield case("unknown tool", turn(unknown), calls=[unknown], errors=["unknown_tool"])
    whole = spelling.call(*simple)
    cut = spelling.turn([whole]).partition("x = 1")[0]
    yield case("cut in a value", cut, errors=["unclosed"], finish_reason="length")
    if spelling.family == "gpt_oss":
        return
    yield case(
        "call in an open think block",
        f"{opener}Now: \n{turn(simple)}",
        errors=["in_reasoning"],
        reasoning=f"Now: \n{turn(simple)}",
    )
    body = turn(NOW).replace(spelling.opener, "", 1).strip()
    yield case(
        "body without its opener in a think block",
        f"{opener.strip()}{body} no, better not{closer}Done.",
        content="Done.",
        reasoning=f"{body} no, better not",
    )
    mention = f"A call begins with `{spelling.opener}` here."
    think, think_end = opener.strip(), closer.strip()
    one = turn(NOW)
    for name, text, prompted in (
        ("a think block", f"{think}Hm.{think_end}", False),
        ("the prompt's think block", f"Hm.{think_end}", True),
    ):
        yield case(
            f"call right after {name}", text + one, calls=[NOW], reasoning="Hm.", reasoning_open=prompted
        )
        yield case(
            f"malformed call right after {name}",
            text + spelling.turn([spelling.bad]),
            errors=[spelling.bad_kind],
            reasoning="Hm.",
            reasoning_open=prompted,
        )
    yield case(
        "draft before a closing think marker that nobody opened, right before a call",
        f"Hm. {one}{think_end}{one}",
        calls=[NOW],
        reasoning=f"Hm. {one}",
        prefix_reasons=(),
    )
    yield case(
        "think block opened by the prompt and the model",
        f"{think}Hm.{think_end}{one}",
        calls=[NOW],
        reasoning="Hm.",
        reasoning_open=True,
    )
    yield case(
        "draft in a second think block",
        f"{opener}a{think_end}{think}b\n{one}{closer}{one}",
        calls=[NOW],
        reasoning=f"a\nb\n{one}",
    )
    yield case(
        "draft in a think block that begins in a line",
        f"Well. {think}b\n{one}{closer}{one}",
        calls=[NOW],
        content="Well. ",
        reasoning=f"b\n{one}",
        prefix_reasons=(),
    )
    yield case(
        "think markers mentioned",
        spelling.text(f"Write {think} and {think_end} here.") + one,
        calls=[NOW],
        content=f"Write {think} and {think_end} here.",
    )
    yield case("mention in code marks", mention, content=mention)
    for mark, name in (("`", "inline code"), ("```", "a fence")):
        text = f"For example:\n{mark}\n{turn(simple)}\n{mark}\ndoes it." if name == "a fence" else (
            f"For example, {mark}{turn(NOW)}{mark} does it."
        )  # fmt: skip
        yield case(f"example in {name}", text, content=text, prefix_reasons=("length",))


GENERIC = [case for spelling in SPELLINGS.values() for case in generic_cases(spelling)]
