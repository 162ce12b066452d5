"""Git in the workspace, without pager, prompt or editor."""

import shlex

from backends.base import ExecutionResult
from toolsets.governed import TerminalPath
from toolsets.results import KEPT_CHARS
from toolsets.tool import ToolCallContext, ToolResult, tool

GIT = (
    "GIT_TERMINAL_PROMPT=0 git --no-pager -c safe.directory='*' -c color.ui=false -c core.quotepath=false"
    " -c commit.gpgsign=false"
)
"""A repository that was put into the sandbox belongs to another user than the agent's."""

AUTHOR = "-c user.name=agent -c user.email=agent@localhost"


@tool()
async def git_status(context: ToolCallContext) -> ToolResult:
    """Show the branch and the changed files of the repository, one `XY path` each as in `git status -s`."""
    result = await _git(context, "status", "--porcelain=v1", "--branch", "-z", "--untracked-files=all")
    if result.exit_code != 0:
        return _failed(result)
    branch, *entries = result.stdout.rstrip("\0").split("\0")
    changes: list[str] = []
    for entry in entries:
        if changes and changes[-1][0] in "RC" and " <- " not in changes[-1]:
            changes[-1] += f" <- {entry}"  # with -z, a renamed file is followed by its old name
        else:
            changes.append(entry)
    return ToolResult({"branch": branch.removeprefix("## "), "changes": changes})


@tool()
async def git_diff(
    context: ToolCallContext, paths: list[TerminalPath] | None = None, against: str = "", staged: bool = False
) -> ToolResult:
    """Show what has changed as a unified diff.

    Args:
        paths: Files or folders to look at; all if left out.
        against: Commit or branch to compare with; what is staged, or the last commit, if left out.
        staged: Show what is staged instead of what is not.
    """
    revision = ["--end-of-options", against] if against else []
    arguments = [*(["--cached"] if staged else []), *revision, "--", *(paths or [])]
    result = await _git(context, "diff", "--no-ext-diff", *arguments)
    return _failed(result) if result.exit_code != 0 else ToolResult(result.stdout or "no changes")


@tool()
async def git_log(
    context: ToolCallContext, count: int = 10, paths: list[TerminalPath] | None = None
) -> ToolResult:
    """List the latest commits, newest first.

    Args:
        count: How many.
        paths: Only commits that touch these files or folders.
    """
    form = "--pretty=format:%h %ad %an: %s"
    result = await _git(
        context, "log", f"--max-count={max(count, 0)}", "--date=iso-strict", form, "--", *(paths or [])
    )
    return _failed(result) if result.exit_code != 0 else ToolResult(result.stdout or "no commits")


@tool()
async def git_commit(
    context: ToolCallContext, message: str, paths: list[TerminalPath] | None = None
) -> ToolResult:
    """Commit changes, new files included.

    Args:
        message: The commit message.
        paths: Files or folders to commit; everything that changed if left out.
    """
    staged = await _git(context, "add", "--all", "--", *(paths or [":/"]))
    if staged.exit_code != 0:
        return _failed(staged)
    result = await _git(
        context, "commit", "--quiet", "--message", message, "--", *(paths or []), as_agent=True
    )
    if result.exit_code != 0:
        return _failed(result)
    head = await _git(context, "log", "--max-count=1", "--pretty=format:%h %s")
    changed = await _git(context, "show", "--name-only", "--pretty=format:", "-z", "HEAD")
    files = [path for path in changed.stdout.split("\0") if path.strip("\n")]
    return ToolResult({"commit": head.stdout, "files": [path.strip("\n") for path in files]})


async def _git(context: ToolCallContext, *arguments: str, as_agent: bool = False) -> ExecutionResult:
    """Run git where the agent's shell is; ``as_agent`` names an author, for a sandbox that has none."""
    author = f"$({GIT} config user.email >/dev/null || printf %s {shlex.quote(AUTHOR)})" if as_agent else ""
    return await context.sandbox.exec(
        f"{GIT} {author} {shlex.join(arguments)}",
        timeout_s=context.remaining_s,
        max_output_bytes=KEPT_CHARS,
    )


def _failed(result: ExecutionResult) -> ToolResult:
    if result.timed_out:
        return ToolResult.failed(f"git was stopped after {result.duration_s:.0f} s")
    return ToolResult.failed(
        (result.stderr or result.stdout).strip() or f"git exited with {result.exit_code}"
    )
