"""The shell of the sandbox."""

from typing import Any

from backends.base import ExecutionResult
from toolsets.tool import ToolCallContext, ToolResult, tool


@tool()
async def terminal(context: ToolCallContext, command: str) -> ToolResult:
    """Run a shell command. The working directory and exported variables persist between calls.

    Args:
        command: The command line to run.
    """
    result = await context.sandbox.exec(command, timeout_s=context.timeout_s, merge_stderr=True)
    return ToolResult(seen_by_model(result, context.timeout_s))


def seen_by_model(result: ExecutionResult, timeout_s: float) -> dict[str, Any]:
    """Return what the model is shown of a command: its output and exit code, and whether it was stopped."""
    seen = {"output": result.stdout, "exit_code": result.exit_code}
    return {**seen, "error": f"stopped after {timeout_s:g} s"} if result.timed_out else seen
