"""Running pytest in the sandbox, with its report read instead of its output."""

import shlex
from collections import Counter

from toolsets.governed import TerminalPath
from toolsets.pytest_report import CaseReport, PytestReport, ReportUnreadable, read_junit
from toolsets.tool import ToolCallContext, ToolResult, tool

MAX_SHOWN = 20
"""Failures that are described; of the others the ids are listed."""

DETAIL_CHARS = 1500

MAX_REPORT_BYTES = 16 * 2**20

RUN = """
report=$(mktemp /tmp/.pytest-XXXXXXXX) && printf %s "$report" >&2 &&
python3 -m pytest -q -o junit_family=xunit1 --junitxml="$report" {arguments} 2>&1
"""


@tool()
async def run_tests(
    context: ToolCallContext,
    targets: list[TerminalPath] | None = None,
    keyword: str = "",
    stop_at_first: bool = False,
) -> ToolResult:
    """Run pytest where the terminal is and return which tests failed and why.

    Args:
        targets: Files, folders or test ids such as `tests/test_a.py::test_b`; all tests if left out.
        keyword: Run only tests whose names match this pytest expression.
        stop_at_first: Stop at the first failure.
    """
    options = [*(["-k", keyword] if keyword else []), *(["-x"] if stop_at_first else [])]
    result = await context.sandbox.exec(
        RUN.format(arguments=shlex.join([*options, "--", *(targets or [])])),
        timeout_s=context.remaining_s,
        isolated=True,
    )
    ran = {"exit_code": result.exit_code, "output": result.stdout}
    if result.timed_out:
        return ToolResult({**ran, "error": f"stopped after {context.timeout_s:g} s"})
    try:
        report = read_junit(await context.sandbox.read_file(result.stderr, max_bytes=MAX_REPORT_BYTES))
    except (OSError, ReportUnreadable):
        return ToolResult({**ran, "error": "pytest wrote no report"})
    if not report.cases:
        return ToolResult(ran)
    return ToolResult({"exit_code": result.exit_code, **_summary(report)})


def _summary(report: PytestReport) -> dict[str, object]:
    failed = [case for case in report.cases.values() if case.outcome in ("failed", "error")]
    counts = Counter(case.outcome for case in report.cases.values())
    described = [_described(case) for case in failed[:MAX_SHOWN]]
    also = {"also_failed": [case.id for case in failed[MAX_SHOWN:]]} if len(failed) > MAX_SHOWN else {}
    return {"counts": counts, "failures": described, **also}


def _described(case: CaseReport) -> dict[str, str]:
    return {
        "id": case.id,
        "outcome": case.outcome,
        "message": case.message,
        "details": case.details[-DETAIL_CHARS:],
    }
