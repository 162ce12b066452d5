"""Our parsers and vLLM's on every valid case: the same calls, or a deviation listed with its reason."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.tool_call_parsers.cases import GENERIC
from tests.tool_call_parsers.special_cases import SPECIAL
from tests.tool_call_parsers.spellings import TOOLS

# ruff: noqa: E501 - a table reads better with one entry a line

HELPER = Path(__file__).parents[2] / "scripts" / "bench" / "vllm_parsers.py"

NOT_COMPARED = {
    "xml": "vLLM has no such parser",
    "json": "vLLM has no such parser",
    "react": "vLLM has no such parser",
}

DEVIATIONS = [
    ("*", "draft in a* think block*", "a draft is no call: vLLM's tool parser runs it unless a reasoning parser takes it off first"),
    ("hermes", "closing think tag alone*", "as above"),
    ("*", "draft before a closing think marker*", "as above"),
    ("*", "example in *", "an example quoted in code marks is no call"),
    ("hermes", "a fence right after a thought", "as above"),
    ("*", "mention in code marks", "a mention is no call; vLLM takes what follows the marker for a name"),
    ("*pythonic", "content before", "vLLM wants the whole text to be the list; the calls after a sentence are lost"),
    ("*pythonic", "empty think block", "as above"),
    ("*pythonic", "end of turn", "as above, for the end-of-turn token"),
    ("*pythonic", "think markers mentioned", "as above"),
    ("*pythonic", "call right after *think block", "as above"),
    ("*pythonic", "think block opened by the prompt*", "as above"),
    ("qwen3_coder", "CRLF around a value", "vLLM leaves half of each line break in the value"),
    ("hermes", "end of turn instead of the closing tag", "the body is whole and the turn ended"),
    ("hermes", "doubled opening tag", "the tag is doubled, the call is clear"),
    ("hermes", "closing tag forgotten before a sibling", "both bodies are whole; vLLM makes them text"),
    ("qwen3_coder", "own markers in a value", "vLLM drops the end-of-turn token inside the value"),
    ("qwen3_coder", "a quoted example", "vLLM cuts the value and makes a parameter of the quotation"),
    ("qwen3_coder", "two quoted examples", "vLLM runs the second quotation: rm -rf /"),
    ("qwen3_coder", "quoted parameters", "vLLM makes parameters of the quotation"),
    ("qwen3_coder", "a* tag mentioned in a value", "vLLM cuts the value"),
    ("qwen3_coder", "tags mentioned in a sentence", "vLLM calls foo"),
    ("deepseek_v3*", "multi-line JSON", "vLLM's pattern does not match line breaks; call and text are lost"),
    ("deepseek_v3*", "section left out", "every call is marked and whole"),
    ("deepseek_v3*", "stopped at the closing marker", "the body is whole and the turn ended; vLLM loses the text too"),
    ("deepseek_v*", "a quoted example", "vLLM cuts the value and makes a parameter of the quotation"),
    ("mistral_v11", "own markers in a value", "vLLM ends the JSON at a marker inside a string and passes on what is no JSON"),
    ("mistral_v11", "with an id", "vLLM glues the id onto the name"),
    ("kimi_k2", "own markers in a value", "vLLM drops the end-of-turn token inside the string"),
    ("kimi_k2", "a bad id", "the name is clear without the prefix and the index"),
    ("granite", "hermes-like", "Granite 3 writes the tag too; vLLM reads it as text"),
    ("phi4_mini", "typed values", "vLLM stops at the first closing bracket"),
    ("phi4_mini", "deep nesting", "as above"),
    ("functiongemma", "64 calls", "vLLM drops bare numbers"),
    ("functiongemma", "bare numbers", "as above"),
    ("functiongemma", "typed values", "as above, and of nested values"),
    ("functiongemma", "deep nesting", "vLLM drops nested values"),
    ("functiongemma", "value: json_text", "a string between escape markers stays a string"),
    ("*", "call quoted in *", "a mention is no call"),
    ("*", "call quoted after Chinese", "as above"),
    ("*", "* quoted in the family's own form", "as above; vLLM runs what is quoted"),
    ("*", "body without its opener in a think block", "a draft is no call"),
    ("mistral_v11", "taken off after an id", "the body is whole: a server took [ARGS] off as a stop string"),
    ("olmo3", "JSON's escaped slash", "its literals are JSON's; vLLM leaves the backslash"),
    ("*", "closing think tag in *", "a draft: the tag before it is quoted, and another closes the block"),
    ("qwen3_coder", "closing tag of the function in a value", "vLLM drops the value"),
    ("qwen3_coder", "closing tag at the end of a value", "vLLM cuts the value"),
    ("qwen3_coder", "spaces in the tags", "vLLM leaves the blank in the key"),
    ("deepseek_v3", "no fence", "the call is marked and whole; vLLM loses it"),
    ("deepseek_v3", "fence without its language", "as above"),
    ("deepseek_v3", "closing fence missing", "as above"),
    ("deepseek_v31", "newlines around the arguments", "as above"),
    ("deepseek_v31", "spaces around the name", "vLLM leaves the blanks in the name"),
    ("deepseek_v32", "closing tags in a value", "vLLM drops the value"),
    ("deepseek_v32", "attributes *", "a tag is read by the names of its attributes"),
    ("glm45", "tags of a pair in a value", "vLLM cuts the value"),
    ("glm45", "a call in a value", "vLLM drops the value"),
    ("kimi_k2", "section in the singular", "every call is marked and whole"),
    ("kimi_k2", "markers in a value", "vLLM cuts the JSON and passes on what is none"),
    ("mistral", "own markers in a value", "vLLM splits the text at a marker inside a string"),
    ("mistral", "closing bracket missing", "the call is whole and the turn ended"),
    ("mistral_v11", "the marker mentioned before a brace", "a mention is no call; vLLM calls 'and then'"),
    ("mistral_v11", "the markers of a call mentioned", "as above"),
    ("mistral_v11", "draft in a thought", "a draft is no call"),
    ("llama3_json", "call in the midst of a line", "without a marker only an object that begins a line is a call"),
    ("gpt_oss", "*markers in a value", "spelled out in a string, they end the JSON as special tokens; vLLM passes on what is none"),
    ("gpt_oss", "recipient in the role", "the text begins the message anew; vLLM's parser knows only what follows the prompt"),
    ("gpt_oss", "ended by the next message", "vLLM takes the next message into the arguments"),
    ("minimax_m2", "a tag in a value", "vLLM makes a parameter of the quotation"),
    ("minimax_m2", "tag in a sentence", "a mention is no call"),
    ("pythonic", "over several lines", "vLLM's pattern does not match line breaks"),
]  # fmt: skip

CASES = [
    case
    for case in [*GENERIC, *SPECIAL]
    if case.valid and case.family not in NOT_COMPARED and "\ud83d" not in case.text
]


def listed(case) -> bool:
    return any(fnmatch(case.family, family) and fnmatch(case.name, name) for family, name, _ in DEVIATIONS)


@pytest.fixture(scope="module")
def theirs(ask_in_vllm):
    texts: dict[str, dict[str, str]] = {}
    for case in CASES:
        texts.setdefault(case.family, {})[case.name] = case.text
    return ask_in_vllm(HELPER, {"mode": "parse", "tools": TOOLS, "texts": texts})


@pytest.mark.vllm
@pytest.mark.parametrize("family", sorted({case.family for case in CASES}))
def test_vllm_finds_the_same_calls_but_for_the_listed_deviations(theirs, family):
    differing = {
        case.name
        for case in CASES
        if case.family == family
        and theirs[family][case.name].get("calls") != [[name, arguments] for name, arguments in case.calls]
    }

    assert differing <= {case.name for case in CASES if case.family == family and listed(case)}


@pytest.mark.vllm
def test_every_listed_deviation_is_one(theirs):
    for family, name, reason in DEVIATIONS:
        matching = [case for case in CASES if fnmatch(case.family, family) and fnmatch(case.name, name)]
        differing = [
            case for case in matching
            if theirs[case.family][case.name].get("calls") != [list(call) for call in case.calls]
        ]  # fmt: skip
        assert differing, f"{family}: {name} ({reason}) agrees now: take it off the list"
