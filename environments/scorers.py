"""Common parts of rewards: what the agent answered, and what it left in the sandbox.

Each function makes a scorer for `Part`, which gives 1 or 0 unless it says otherwise. ``field`` names the
field of the item that holds what is expected.
"""

import re
import secrets
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from environments.agent_loop import Transcript
from environments.items import TaskItem
from environments.pytest_verdict import run_tests
from environments.reward import ToolContext
from environments.reward_parts import Scorer
from toolsets.pytest_report import ReportUnreadable, read_junit
from trajectories.errors import RewardError

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")

NO_TESTS = 5
"""Exit code of a pytest that found no test."""


def exact_answer(field: str = "answer", *, ignore_case: bool = False) -> Scorer:
    """Compare the whole answer, blanks around it left out."""

    async def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        said, expected = result.answer.strip(), str(item[field]).strip()
        return float(said.casefold() == expected.casefold() if ignore_case else said == expected)

    return score


def regex_answer(pattern: str) -> Scorer:
    """Look for a pattern anywhere in the answer.

    The search runs in a thread: give the part a ``timeout_s`` where the pattern can take long.
    """
    compiled = re.compile(pattern)

    def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        return float(compiled.search(result.answer) is not None)

    return score


def numeric_answer(field: str = "answer", *, tolerance: float = 0.0) -> Scorer:
    """Compare the answer's final number (see `final_number`) with the expected one's.

    Args:
        field: See above; its text or number is read in the same way.
        tolerance: Largest difference that counts as equal.
    """

    async def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        expected = final_number(str(item[field]))
        if expected is None:
            raise RewardError(f"the item's {field!r} holds no number: {item[field]!r}", retryable=False)
        said = final_number(result.answer)
        return float(said is not None and abs(said - expected) <= Decimal(str(tolerance)))

    return score


def file_holds(path: str, field: str) -> Scorer:
    """Compare a file's text with the expected one, blanks at the end left out."""

    async def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        text = await ctx.read_text(path)
        return float(text is not None and text.rstrip() == str(item[field]).rstrip())

    return score


def command_exits(command: str, code: int = 0) -> Scorer:
    """Run a shell command in the workspace and look at its exit code.

    One that does not end within the reward's time limit is a failure, not a score.
    """

    async def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        return float((await ctx.exec(command)).exit_code == code)

    return score


def given_tests_pass(field: str, *, timeout_s: float, watched: Sequence[str] = ()) -> Scorer:
    """Score the share of the item's tests that pass, run by `pytest_verdict.run_tests`.

    Args:
        field: Names a list of pytest node ids.
        timeout_s: Longest run of them all.
        watched: What must not change meanwhile.
    """

    async def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        return (await run_tests(ctx, item[field], timeout_s=timeout_s, watched=watched)).share(item[field])

    return score


def own_tests_pass(target: str = ".", *, timeout_s: float, python: str = "python3") -> Scorer:
    """Score the share of passed tests among all that pytest finds, as its own report has it; 0 without tests.

    For tests that the agent may write. The tested code can forge the report; to judge by given tests, use
    `given_tests_pass`.
    """

    async def score(item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        report = f"/tmp/{secrets.token_hex(16)}.xml"
        command = f"{python} -m pytest -q -o junit_family=xunit1 --junitxml={report} {target}"
        ran = await ctx.exec(command, timeout_s=timeout_s)
        if "No module named pytest" in ran.stderr or ran.exit_code == 127:
            raise RewardError(f"there is no pytest: {ran.stderr.strip()[-200:]}", retryable=False)
        text = await ctx.read_text(report)
        if ran.timed_out or ran.exit_code == NO_TESTS or text is None:
            return 0.0
        try:
            cases = read_junit(text.encode()).cases.values()
        except ReportUnreadable:
            return 0.0
        return sum(case.outcome in ("passed", "xfailed") for case in cases) / len(cases) if cases else 0.0

    return score


def final_number(text: str) -> Decimal | None:
    """Return the number after the last ``####``, or else the text's last number; None if there is none."""
    _, marker, after = text.rpartition("####")
    numbers = NUMBER.findall(after)
    if not numbers:
        return None
    found = numbers[0] if marker else numbers[-1]
    try:
        return Decimal(found.replace(",", ""))
    except InvalidOperation:
        return None
