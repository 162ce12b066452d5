"""Finding files and lines in the sandbox, from the workspace, wherever the agent's shell has gone.

Only bash, coreutils and grep are needed; ripgrep is used where the sandbox has it. Both are told to look at
the same files (hidden and ignored ones too, ``.git`` and binary files not), so an image changes speed, not
results.
"""

import shlex

from backends.base import ExecutionResult
from toolsets.governed import ReadPath
from toolsets.tool import ToolCallContext, ToolResult, tool

MAX_MATCHES = 200
"""More lines than this are of no use to a model and only fill its context."""

MAX_LINE_CHARS = 400

LIST = """
shopt -s globstar nullglob dotglob
cd -- {path} || exit 2
IFS= found=0
for file in $pattern; do
    [[ -f $file && /$file != */.git/* ]] || continue
    ((found++ < {limit})) || break
    printf '%s\\0' "$file"
done
"""
"""`IFS=` and the unquoted variable make bash expand the pattern and nothing else in it."""

SEARCH = """
[[ -e {path} ]] || {{ echo {path}: No such file or directory >&2; exit 2; }}
if command -v rg >/dev/null; then
    rg --no-config --hidden --no-ignore --glob '!.git' --line-number --no-heading --with-filename \
        --color=never --sort=path {glob} --regexp={pattern} -- {path}
else
    grep -P '' </dev/null 2>/dev/null; (($? < 2)) && flavour=-P || flavour=-E
    LC_ALL=C.UTF-8 grep -rnIH $flavour --exclude-dir=.git {include} --regexp={pattern} -- {path} |
        LC_ALL=C sort -s -t: -k1,1
    code=${{PIPESTATUS[0]}}; (exit $code)
fi
"""


@tool()
async def list_files(context: ToolCallContext, pattern: str = "*", path: ReadPath = ".") -> ToolResult:
    """List files, folders themselves left out.

    Args:
        pattern: Glob such as `*.py` (at any depth) or `src/**/test_*.py` (from the folder).
        path: Folder to look in.
    """
    anywhere = pattern if "/" in pattern else f"**/{pattern}"
    script = LIST.format(path=shlex.quote(path), limit=MAX_MATCHES + 1)
    result = await _run(context, f"pattern={shlex.quote(anywhere)}\n{script}")
    return _listed(context, result, result.stdout.rstrip("\0").split("\0") if result.stdout else [])


@tool()
async def search_files(
    context: ToolCallContext, pattern: str, path: ReadPath = ".", files: str = "*"
) -> ToolResult:
    """Search files for lines that match a regular expression; answers `file:line number:line`.

    Args:
        pattern: The regular expression.
        path: File or folder to search.
        files: Glob that a file's name must match, such as `*.py`.
    """
    script = SEARCH.format(
        path=shlex.quote(path),
        pattern=shlex.quote(pattern),
        glob="" if files == "*" else f"--glob {shlex.quote(files)}",
        include="" if files == "*" else f"--include={shlex.quote(files)}",
    )
    result = await _run(context, f"set -o pipefail; {{ {script}\n}} | head -n {MAX_MATCHES + 1}")
    lines = [line.removeprefix("./")[:MAX_LINE_CHARS] for line in result.stdout.splitlines()]
    return _listed(context, result, lines)


async def _run(context: ToolCallContext, script: str) -> ExecutionResult:
    return await context.sandbox.exec(script, timeout_s=context.remaining_s, shell="files", isolated=True)


def _listed(context: ToolCallContext, result: ExecutionResult, found: list[str]) -> ToolResult:
    if result.timed_out:
        return ToolResult.failed(f"stopped after {context.timeout_s:g} s; look in a smaller folder")
    if result.exit_code == 2 and not found:
        return ToolResult.failed(result.stderr.strip())
    return ToolResult({"matches": found[:MAX_MATCHES], "more": len(found) > MAX_MATCHES})
