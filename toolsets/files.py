"""Reading, writing, editing and finding files in the sandbox.

Paths are relative to the workspace unless absolute, wherever the agent's shell has gone: listing and
searching use a shell of their own. What the tools can reach is bounded by the sandbox, not by checks here.
"""

import shlex

from toolsets.tool import ToolCallContext, ToolResult, tool

MAX_MATCHES = 200
"""More lines than this are of no use to a model and only fill its context."""


@tool()
async def read_file(
    context: ToolCallContext, path: str, first_line: int = 1, line_count: int | None = None
) -> ToolResult:
    """Read a text file, or a range of its lines.

    Args:
        path: File to read.
        first_line: First line to return, counted from 1.
        line_count: How many lines to return; all of them if left out.
    """
    try:
        text = (await context.sandbox.read_file(path)).decode("utf-8", "replace")
    except OSError as error:
        return ToolResult.failed(_reason(path, error))
    if first_line == 1 and line_count is None:
        return ToolResult(text)
    lines = text.splitlines(keepends=True)
    start = max(first_line, 1) - 1
    return ToolResult("".join(lines[start : None if line_count is None else start + line_count]))


@tool()
async def write_file(context: ToolCallContext, path: str, content: str) -> ToolResult:
    """Write a text file, replacing what it held; missing folders are made.

    Args:
        path: File to write.
        content: The whole new text.
    """
    data = content.encode("utf-8", "surrogatepass")
    try:
        await context.sandbox.write_file(path, data)
    except OSError as error:
        return ToolResult.failed(_reason(path, error))
    return ToolResult({"path": path, "bytes": len(data)}, files_changed=[path])


@tool()
async def edit_file(context: ToolCallContext, path: str, old: str, new: str) -> ToolResult:
    """Replace a piece of text that stands exactly once in a file.

    Args:
        path: File to edit.
        old: Text to replace, exactly as it stands in the file.
        new: Text to put in its place.
    """
    try:
        data = await context.sandbox.read_file(path)
        count = data.count(old.encode()) if old else 0
        if count != 1:
            return ToolResult.failed(f"{path}: `old` stands {count} times in the file; it must stand once")
        await context.sandbox.write_file(path, data.replace(old.encode(), new.encode()))
    except OSError as error:
        return ToolResult.failed(_reason(path, error))
    return ToolResult({"path": path, "replaced": 1}, files_changed=[path])


@tool()
async def list_files(context: ToolCallContext, path: str = ".", pattern: str = "*") -> ToolResult:
    """List files below a folder, folders themselves left out.

    Args:
        path: Folder to look in.
        pattern: Shell pattern that a file's name must match.
    """
    found = f"find {shlex.quote(path)} -name {shlex.quote(pattern)} -type f -print"
    return await _lines(context, f"{found} | sort | head -n {MAX_MATCHES + 1}")


@tool()
async def search_files(context: ToolCallContext, pattern: str, path: str = ".") -> ToolResult:
    """Search files for lines that match an extended regular expression.

    Args:
        pattern: The expression.
        path: File or folder to search.
    """
    search = f"grep -rnIE -e {shlex.quote(pattern)} -- {shlex.quote(path)}"
    return await _lines(context, f"{search} | head -n {MAX_MATCHES + 1}")


async def _lines(context: ToolCallContext, command: str) -> ToolResult:
    result = await context.sandbox.exec(command, timeout_s=context.timeout_s, shell="files")
    if result.timed_out:
        return ToolResult.failed(f"stopped after {context.timeout_s:g} s")
    if result.stderr:
        return ToolResult.failed(result.stderr.strip())
    lines = result.stdout.splitlines()
    return ToolResult({"matches": lines[:MAX_MATCHES], "more": len(lines) > MAX_MATCHES})


def _reason(path: str, error: OSError) -> str:
    return f"{path}: {error.strerror or error}"
