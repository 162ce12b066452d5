"""Scorers: answers compared as they should be, states of the sandbox looked at, judges asked."""

import pytest

from environments.agent_loop import Transcript
from environments.reward import ToolContext
from environments.rubric import RubricJudge
from environments.scorers import (
    command_exits,
    exact_answer,
    file_holds,
    given_tests_pass,
    numeric_answer,
    own_tests_pass,
    regex_answer,
)
from inference.scripted import ScriptedClient
from tests.environments.rolling import sandboxes
from trajectories.errors import ModelError, RewardError
from trajectories.messages import Message
from trajectories.turn import SamplingParams, Turn

TASK = Message.user("Name the capital of France.")


def answering(text):
    message = Message.assistant(text)
    return Transcript([TASK, message], [Turn(message, "stop", SamplingParams())])


async def score(scorer, said="", ctx=None, **item):
    scored = scorer(item, answering(said), ctx)
    return scored if isinstance(scored, float) else await scored


@pytest.mark.parametrize(
    "scorer, said, expected, reward",
    [
        (exact_answer(), " Paris\n", "Paris", 1),
        (exact_answer(), "paris", "Paris", 0),
        (exact_answer(ignore_case=True), "PARIS", "Paris", 1),
        (exact_answer(), "It is Paris", "Paris", 0),
        (exact_answer(), "4", 4, 1),
        (regex_answer(r"\bParis\b"), "It is Paris.", None, 1),
        (regex_answer(r"\bParis\b"), "Parisian", None, 0),
        (numeric_answer(), "so 1,250.0 pens", 1250, 1),
        (numeric_answer(), "1251", "1250", 0),
        (numeric_answer(tolerance=0.01), "about 3.14", 3.1415, 1),
        (numeric_answer(tolerance=0.001), "about 3.14", 3.1415, 0),
        (numeric_answer(), "none", 3, 0),
    ],
)
async def test_answers(scorer, said, expected, reward):
    assert await score(scorer, said, answer=expected) == reward


async def test_an_item_without_a_number_is_no_fault_of_the_answer():
    with pytest.raises(RewardError, match="'answer' holds no number"):
        await score(numeric_answer(), "3", answer="many")


async def test_states_of_the_sandbox():
    async with sandboxes("local") as backend, backend.acquire("judge") as slot:

        async def same():
            return slot

        ctx = ToolContext(same, 60.0)
        files = {
            "out.txt": "right\n",
            "tests/test_a.py": "def test_a(): pass\ndef test_b(): assert False\n",
            "empty/test_none.py": "",
            "broken/test_x.py": "import os; os._exit(0)",
        }
        for path, text in files.items():
            await slot.write_file(path, text.encode())
        assert await score(file_holds("out.txt", "want"), ctx=ctx, want="right") == 1
        assert await score(file_holds("out.txt", "want"), ctx=ctx, want="left") == 0
        assert await score(file_holds("none.txt", "want"), ctx=ctx, want="") == 0
        assert await score(command_exits("exit 3", code=3), ctx=ctx) == 1
        assert await score(command_exits("exit 3"), ctx=ctx) == 0
        both = ["tests/test_a.py::test_a", "tests/test_a.py::test_b"]
        assert await score(given_tests_pass("tests", timeout_s=30.0), ctx=ctx, tests=both) == 0.5
        assert await score(own_tests_pass("tests", timeout_s=30.0), ctx=ctx) == 0.5
        assert await score(own_tests_pass("empty", timeout_s=30.0), ctx=ctx) == 0
        assert await score(own_tests_pass("broken", timeout_s=30.0), ctx=ctx) == 0
        with pytest.raises(RewardError, match="there is no pytest"):
            await score(own_tests_pass("tests", timeout_s=30.0, python="no-python"), ctx=ctx)


async def test_a_judge_is_asked_for_each_criterion():
    answers = iter(["It is.\nVERDICT: 10", "Rather long. VERDICT: 4/10"])
    client = ScriptedClient(lambda messages, tools: Message.assistant(next(answers)))
    assert await score(RubricJudge(client, ["right", "short"]), "Paris", prompt="Capital?") == pytest.approx(
        0.7
    )
    first, second = (call.messages[0].content for call in client.calls)
    assert "Capital?" in first and "Paris" in first and "right" in first and "short" in second
    assert client.calls[0].sampling.temperature == 0


async def test_marks_around_what_is_judged_are_never_the_same():
    client = ScriptedClient(lambda messages, tools: Message.assistant("VERDICT: 1"))
    await score(RubricJudge(client, ["a", "b"]), "Paris", prompt="?")
    marks = {
        line for call in client.calls for line in call.messages[0].content.splitlines() if "===" in line[:4]
    }
    assert len(marks) == 2


async def test_the_last_verdict_counts_and_only_one_on_the_scale():
    said = "VERDICT: 3\nno,\nVERDICT: 8"
    client = ScriptedClient(lambda messages, tools: Message.assistant(said))
    assert await score(RubricJudge(client, ["a"]), "x", prompt="?") == pytest.approx(0.8)


@pytest.mark.parametrize("said", ["I can't tell.", "VERDICT: 11", "verdict ten"])
async def test_a_judge_without_a_verdict_is_asked_again_and_then_fails(said):
    client = ScriptedClient(lambda messages, tools: Message.assistant(said))
    with pytest.raises(RewardError, match="no verdict on 'a'"):
        await score(RubricJudge(client, ["a"], attempts=3), "x", prompt="?")
    assert len(client.calls) == 3


async def test_a_judge_that_is_down_fails_and_does_not_score():
    client = ScriptedClient(lambda messages, tools: ModelError("502"))
    with pytest.raises(ModelError):
        await score(RubricJudge(client, ["a"]), "x", prompt="?")
