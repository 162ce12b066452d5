"""A Python interpreter in the sandbox."""

from toolsets.terminal import seen_by_model
from toolsets.tool import ToolCallContext, ToolResult, tool


@tool()
async def python(context: ToolCallContext, code: str) -> ToolResult:
    """Run a Python program in a fresh interpreter and return what it prints.

    Args:
        code: The program.
    """
    result = await context.sandbox.exec(
        "python3 -",
        stdin=code.encode("utf-8", "surrogatepass"),
        timeout_s=context.timeout_s,
        shell="python",
        merge_stderr=True,
    )
    return ToolResult(seen_by_model(result, context.timeout_s))
