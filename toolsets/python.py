"""A persistent Python interpreter in the sandbox.

It is a process beside the shells (see `interpreter`), so a call that is stopped loses its own work only: the
interpreter gets an interrupt, and is ended if it does not heed it within `INTERRUPT_S`. Whether it lives is
told by the shell that waits for it, never guessed from silence.
"""

from dataclasses import dataclass
from pathlib import Path

from backends.base import ExecutionResult, Slot
from toolsets.results import KEPT_CHARS
from toolsets.tool import ToolCallContext, ToolResult, tool

INTERRUPT_S = 2

START = """
umask 077
folder=$(mktemp -d /tmp/.python-XXXXXXXX) && mkfifo "$folder/requests" "$folder/answers" || exit
cat >"$folder/interpreter.py"
exec 9<>"$folder/requests" # a pipe that nobody holds open forgets what was written to it
setsid bash -c '
    python3 -u "$1/interpreter.py" "$1"
    echo "ended $?" >"$1/answers"
' interpreter "$folder" </dev/null >"$folder/start.log" 2>&1 &
echo $! >"$folder/group"
exec 9>&-
printf %s "$folder"
"""

ASK = """
cat >{folder}/{name}.py && echo {name} 1<>{folder}/requests
read -r word code <{folder}/answers
"""

INTERRUPT = f"""
kill -INT "$(cat {{folder}}/pid)"
read -r -t {INTERRUPT_S} word code <>{{folder}}/answers || word=killed
"""

TELL = """
[[ $word == {name} ]] || kill -KILL -- "-$(cat {folder}/group)" 2>/dev/null
printf %s "$word $code" >&2
cat {folder}/{name}.out 2>/dev/null || cat {folder}/start.log
rm -f {folder}/{name}.*
"""


@dataclass(slots=True)
class Interpreter:
    """One interpreter of one attempt."""

    folder: str
    """Where its pipes and files are, in the sandbox."""
    calls: int = 0


@tool()
async def python(context: ToolCallContext, code: str) -> ToolResult:
    """Run Python code and return what it prints. Variables, imports and functions persist between calls.

    Args:
        code: The code; the value of a last expression is shown.
    """
    slot, memory = context.sandbox, context.memory
    if "python" not in memory:
        memory["python"] = await _start(slot)
    interpreter: Interpreter = memory["python"]
    interpreter.calls += 1
    source = code.encode("utf-8", "surrogatepass")
    result = await _exec(slot, ASK + TELL, interpreter, context.remaining_s, source)
    stopped = result.timed_out
    if stopped:
        result = await _exec(slot, INTERRUPT + TELL, interpreter, INTERRUPT_S + 1)
    name, _, exit_code = result.stderr.partition(" ")
    alive = name == f"call{interpreter.calls}"
    if not alive:
        del memory["python"]
    error = "; ".join(
        [
            *([f"stopped after {context.timeout_s:g} s"] if stopped else []),
            *(
                []
                if alive
                else ["the interpreter ended, its variables are lost; the next call starts a new one"]
            ),
        ]
    )
    seen = {
        "output": result.stdout,
        "exit_code": int(exit_code) if exit_code.lstrip("-").isdigit() and not stopped else None,
    }
    return ToolResult({**seen, "error": error} if error else seen)


async def _start(slot: Slot) -> Interpreter:
    source = Path(__file__).with_name("interpreter.py").read_bytes()
    result = await slot.exec(START, stdin=source, shell="python", isolated=True)
    return Interpreter(result.stdout)


async def _exec(
    slot: Slot, script: str, interpreter: Interpreter, timeout_s: float, stdin: bytes | None = None
) -> ExecutionResult:
    place = script.format(folder=interpreter.folder, name=f"call{interpreter.calls}")
    return await slot.exec(
        place,
        stdin=stdin,
        timeout_s=timeout_s,
        shell="python",
        isolated=True,
        max_output_bytes=KEPT_CHARS,
    )
