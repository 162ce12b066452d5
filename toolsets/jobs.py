"""Commands that run in the background of the sandbox, with their output and input.

A job is a process group of its own beside the shells; it outlives the call that started it and ends with the
sandbox. Its output is a file in the sandbox, so reading it late loses nothing.
"""

import shlex

from toolsets.governed import ShellCommand
from toolsets.results import KEPT_CHARS
from toolsets.tool import ToolCallContext, ToolResult, tool

FOLDER = "/tmp/.jobs"

START = """
folder={folder}
mkdir -p "$folder" && mkfifo "$folder/in" || exit
setsid bash -c '
    cd "$2" || exit
    sleep infinity >"$1/in" & # holds the input open until it is closed on purpose
    echo $! >"$1/holder"
    trap : TERM # the job may end by itself when it is told to; then its exit code is told too
    bash -c "$3" <"$1/in" >"$1/out" 2>&1
    echo $? >"$1/code"
    kill $(<"$1/holder")
' job "$folder" "$PWD" {command} </dev/null >/dev/null 2>&1 &
echo $! >"$folder/group"
"""

READ = """
folder={folder}
[[ -e $folder/group ]] || exit 9
[[ -s $folder/code ]] || timeout {wait_s:.3f} tail --pid="$(<"$folder/group")" -s 0.05 -f /dev/null
cat "$folder/code" >&2 2>/dev/null
tail -c +{position} "$folder/out"
"""

WRITE = """
folder={folder}
[[ -p $folder/in && ! -e $folder/code ]] || exit 9
cat >"$folder/in"
"""

CLOSE = """
rm "$folder/in" && kill "$(<"$folder/holder")"
"""

STOP = """
folder={folder}
[[ -e $folder/group ]] || exit 9
group=$(<"$folder/group")
[[ -e $folder/code ]] || kill -TERM -- "-$group" 2>/dev/null
timeout 2 tail --pid="$group" -s 0.05 -f /dev/null
kill -KILL -- "-$group" 2>/dev/null
[[ -e $folder/code ]] || echo 137 >"$folder/code"
"""


@tool()
async def start_job(context: ToolCallContext, command: ShellCommand) -> ToolResult:
    """Start a shell command in the background, where the terminal is; returns its job number.

    Args:
        command: The command line to run.
    """
    positions = _positions(context)
    number = len(positions) + 1
    script = START.format(folder=f"{FOLDER}/{number}", command=shlex.quote(command))
    result = await context.sandbox.exec(script, timeout_s=context.remaining_s, isolated=True)
    if result.exit_code != 0:
        return ToolResult.failed(result.stderr.strip() or "the job could not be started")
    positions.append(0)
    return ToolResult({"job": number})


@tool()
async def read_job(context: ToolCallContext, job: int, wait_s: float = 0) -> ToolResult:
    """Return what a job has printed since it was last read, and its exit code if it has ended.

    Args:
        job: Number of the job.
        wait_s: Seconds to wait for its end first.
    """
    positions = _positions(context)
    if not 1 <= job <= len(positions):
        return _unknown(job, positions)
    wait_s = max(0.001, min(wait_s, context.remaining_s - 1))
    script = READ.format(folder=f"{FOLDER}/{job}", wait_s=wait_s, position=positions[job - 1] + 1)
    result = await context.sandbox.exec(
        script, timeout_s=context.remaining_s, shell="jobs", isolated=True, max_output_bytes=KEPT_CHARS
    )
    if result.timed_out:
        return ToolResult.failed(f"the job's output could not be read within {context.timeout_s:g} s")
    positions[job - 1] += result.stdout_bytes
    code = result.stderr.strip()
    ended = {"exit_code": int(code)} if code.isdigit() else {"running": True}
    return ToolResult({"output": result.stdout, **ended})


@tool()
async def write_job(context: ToolCallContext, job: int, text: str, close: bool = False) -> ToolResult:
    """Send text to a job's standard input.

    Args:
        job: Number of the job.
        text: What to send; end a line with a newline.
        close: End the input after it.
    """
    positions = _positions(context)
    if not 1 <= job <= len(positions):
        return _unknown(job, positions)
    script = (f"{WRITE}{CLOSE}" if close else WRITE).format(folder=f"{FOLDER}/{job}")
    data = text.encode("utf-8", "surrogatepass")
    result = await context.sandbox.exec(
        script, stdin=data, timeout_s=context.remaining_s, shell="jobs", isolated=True
    )
    if result.timed_out:
        return ToolResult.failed(f"job {job} did not read its input within {context.timeout_s:g} s")
    if result.exit_code != 0:
        return ToolResult.failed(f"job {job} has ended or its input is closed")
    return ToolResult({"job": job, "bytes": len(data)})


@tool()
async def stop_job(context: ToolCallContext, job: int) -> ToolResult:
    """End a job and all it started; what it printed can still be read.

    Args:
        job: Number of the job.
    """
    positions = _positions(context)
    if not 1 <= job <= len(positions):
        return _unknown(job, positions)
    script = STOP.format(folder=f"{FOLDER}/{job}")
    result = await context.sandbox.exec(script, timeout_s=context.remaining_s, shell="jobs", isolated=True)
    if result.timed_out:
        return ToolResult.failed(f"job {job} did not end within {context.timeout_s:g} s")
    return ToolResult({"job": job, "stopped": True})


def _positions(context: ToolCallContext) -> list[int]:
    """Return how many bytes of each job's output were read, jobs in order."""
    return context.memory.setdefault("jobs", [])


def _unknown(job: int, positions: list[int]) -> ToolResult:
    known = f"there are jobs 1 to {len(positions)}" if positions else "none was started"
    return ToolResult.failed(f"no job {job}; {known}")
