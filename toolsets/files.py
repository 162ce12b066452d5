"""Reading, writing and editing files in the sandbox.

Paths are relative to the workspace unless absolute, wherever the agent's shell has gone. What the tools can
reach is bounded by the sandbox and by the policy, not by checks here. Edits are of bytes, so that a file that
is no valid UTF-8 keeps what was not edited.
"""

from pydantic import ConfigDict
from typing_extensions import TypedDict

from toolsets.governed import ReadPath, WritePath
from toolsets.tool import ToolCallContext, ToolResult, tool


class Edit(TypedDict):
    """One replacement."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    old: str
    new: str


@tool()
async def read_file(
    context: ToolCallContext, path: ReadPath, first_line: int = 1, line_count: int | None = None
) -> ToolResult:
    """Read a text file, or a range of its lines.

    Args:
        path: File to read.
        first_line: First line to return, counted from 1.
        line_count: How many lines to return; as many as fit if left out.
    """
    try:
        text = (await context.sandbox.read_file(path)).decode("utf-8", "replace")
    except OSError as error:
        return ToolResult.failed(_reason(path, error))
    lines = text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    start = max(first_line, 1) - 1
    if start and start >= len(lines):
        return ToolResult.failed(f"{path} has {len(lines)} lines")
    end = len(lines) if line_count is None else min(start + max(line_count, 0), len(lines))
    end = _what_fits(lines, start, end, context.max_result_chars)
    shown = "".join(lines[start:end])
    if end == len(lines):
        return ToolResult(shown)
    separator = "" if shown.endswith("\n") or not shown else "\n"
    return ToolResult(
        f"{shown}{separator}[lines {start + 1} to {end} of {len(lines)}; go on with first_line={end + 1}]"
    )


@tool()
async def write_file(context: ToolCallContext, path: WritePath, content: str) -> ToolResult:
    """Write a text file, replacing what it held; missing folders are made.

    Args:
        path: File to write.
        content: The whole new text.
    """
    data = _bytes(content)
    try:
        await context.sandbox.write_file(path, data)
    except OSError as error:
        return ToolResult.failed(_reason(path, error))
    return ToolResult({"path": path, "bytes": len(data)}, files_changed=[path])


@tool()
async def edit_file(context: ToolCallContext, path: WritePath, old: str, new: str) -> ToolResult:
    """Replace a piece of text that stands exactly once in a file.

    Args:
        path: File to edit.
        old: Text to replace, exactly as it stands in the file.
        new: Text to put in its place.
    """
    return await _edit(context, path, [Edit(old=old, new=new)])


@tool()
async def edit_many(context: ToolCallContext, path: WritePath, edits: list[Edit]) -> ToolResult:
    """Make several replacements in one file, in order; if one can't be made, none is.

    Args:
        path: File to edit.
        edits: Replacements; each `old` must stand exactly once in the file as the ones before left it.
    """
    return await _edit(context, path, edits)


async def _edit(context: ToolCallContext, path: str, edits: list[Edit]) -> ToolResult:
    try:
        data = await context.sandbox.read_file(path)
        for number, edit in enumerate(edits, 1):
            old = _bytes(edit["old"])
            count = data.count(old) if old else 0
            if count != 1:
                which = f"edit {number}: " if len(edits) > 1 else ""
                reason = f"`old` stands {count} times in the file; it must stand once"
                return ToolResult.failed(f"{path}: {which}{reason}{_hint(data, edit['old'], count)}")
            data = data.replace(old, _bytes(edit["new"]))
        await context.sandbox.write_file(path, data)
    except OSError as error:
        return ToolResult.failed(_reason(path, error))
    return ToolResult({"path": path, "replaced": len(edits)}, files_changed=[path])


def _hint(data: bytes, old: str, count: int) -> str:
    """Say what a model most often gets wrong."""
    if count:
        return "; add lines around it"
    text = data.decode("utf-8", "replace")
    if old.strip() and " ".join(old.split()) in " ".join(text.split()):
        return "; it is there with other white space"
    return ""


def _what_fits(lines: list[str], start: int, end: int, max_chars: int) -> int:
    """Return the end of the lines that fit; one line at least, however long."""
    room = max_chars
    for index in range(start, end):
        room -= len(lines[index])
        if room < 0:
            return max(index, start + 1)
    return end


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _reason(path: str, error: OSError) -> str:
    return f"{path}: {error.strerror or error}"
