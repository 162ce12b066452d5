"""The shell of the sandbox."""

from typing import Any

from backends.base import ExecutionResult
from toolsets.governed import ShellCommand
from toolsets.results import KEPT_CHARS
from toolsets.tool import ToolCallContext, ToolResult, tool


@tool()
async def terminal(
    context: ToolCallContext, command: ShellCommand, stdin: str = "", timeout_s: float | None = None
) -> ToolResult:
    """Run a shell command. The working directory and exported variables persist between calls.

    Args:
        command: The command line to run.
        stdin: Text for its standard input.
        timeout_s: Seconds after which it is stopped; the longest allowed if left out.
    """
    limit = min(timeout_s or context.timeout_s, context.timeout_s)
    result = await context.sandbox.exec(
        command,
        stdin=stdin.encode("utf-8", "surrogatepass") if stdin else None,
        timeout_s=min(limit, context.remaining_s),
        merge_stderr=True,
        max_output_bytes=KEPT_CHARS,
    )
    return ToolResult(seen_by_model(result, limit))


def seen_by_model(result: ExecutionResult, timeout_s: float) -> dict[str, Any]:
    """Return what the model is shown of a command: its output and exit code, and whether it was stopped."""
    seen = {"output": result.stdout, "exit_code": result.exit_code}
    return {**seen, "error": f"stopped after {timeout_s:g} s"} if result.timed_out else seen
