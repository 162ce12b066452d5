"""Every tool that is shipped, on every backend: what it does, and what it answers when it can't."""

import pytest

from tests.toolsets.calling import Caller
from toolsets.files import edit_file, edit_many, read_file, write_file
from toolsets.find import MAX_MATCHES, list_files, search_files
from toolsets.git import git_commit, git_diff, git_log, git_status
from toolsets.jobs import read_job, start_job, stop_job, write_job
from toolsets.python import python
from toolsets.registry import TOOLSETS, resolve_tools
from toolsets.requirements import find_unavailable
from toolsets.terminal import terminal
from toolsets.testing import run_tests

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_toolset_is_available_in_the_test_sandboxes(backend):
    assert await find_unavailable(TOOLSETS, backend) == {}


async def test_the_terminal_keeps_its_folder_and_variables(call):
    await call(terminal, command="mkdir deep && cd deep && export X=1")
    assert await call(terminal, command="basename $PWD; echo $X; exit 3") == {
        "output": "deep\n1\n",
        "exit_code": 3,
    }


async def test_the_terminal_passes_standard_input_verbatim(call):
    text = "a\n$HOME 'q' \\ é"
    assert (await call(terminal, command="cat", stdin=text))["output"] == text


async def test_a_command_is_stopped_when_it_asks_to_be_and_no_later_than_it_may(call):
    told = await call(terminal, command="echo begun; sleep 600", timeout_s=3)
    assert told == {"output": "begun\n", "exit_code": None, "error": "stopped after 3 s"}
    told = await call(terminal, command="echo still here")
    assert told["output"] == "still here\n"


async def test_a_job_runs_beside_the_terminal_and_tells_its_end(call):
    await call(terminal, command="mkdir d; cd d; export GREETING=hello")
    command = "echo $GREETING $(basename $PWD); read line; echo got $line; exit 4"
    assert await call(start_job, command=command) == {"job": 1}
    assert (await call(terminal, command="echo free"))["output"] == "free\n"
    told = await call(read_job, job=1)
    while not told["output"]:
        told = await call(read_job, job=1)
    assert told == {"output": "hello d\n", "running": True}
    assert await call(write_job, job=1, text="it\n") == {"job": 1, "bytes": 3}
    assert await call(read_job, job=1, wait_s=50) == {"output": "got it\n", "exit_code": 4}
    assert await call(read_job, job=1) == {"output": "", "exit_code": 4}
    assert "has ended" in (await call(write_job, job=1, text="more"))["error"]


async def test_closing_a_jobs_input_ends_what_reads_to_its_end(call):
    await call(start_job, command="sort")
    await call(write_job, job=1, text="b\n")
    await call(write_job, job=1, text="a\n", close=True)
    assert await call(read_job, job=1, wait_s=50) == {"output": "a\nb\n", "exit_code": 0}


async def test_a_stopped_job_dies_with_all_it_started(call):
    await call(start_job, command="trap '' TERM; sleep 1000 & sleep 1000")
    assert await call(stop_job, job=1) == {"job": 1, "stopped": True}
    assert "exit_code" in await call(read_job, job=1)
    listed = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    gone = f"while {listed} | grep -q 'sleep 100[0]'; do sleep 0.05; done; echo gone"
    assert (await call(terminal, command=gone))["output"] == "gone\n"


async def test_a_job_that_is_not_there_is_named(call):
    for tool in (read_job, stop_job):
        assert await call(tool, job=1) == {"error": "no job 1; none was started"}
    await call(start_job, command="true")
    assert await call(write_job, job=2, text="") == {"error": "no job 2; there are jobs 1 to 1"}


async def test_a_job_outlives_a_command_that_is_stopped(call):
    await call(start_job, command="sleep 2; echo survived")
    await call(terminal, command="sleep 60", timeout_s=0.2)
    assert (await call(read_job, job=1, wait_s=50))["output"] == "survived\n"


async def test_python_keeps_variables_and_shows_the_last_value(call):
    await call(python, code="import math\ndef double(x):\n    return 2 * x\nn = 21")
    assert await call(python, code="print('so')\ndouble(n)") == {"output": "so\n42\n", "exit_code": 0}
    assert (await call(python, code="math.floor(2.5); None"))["output"] == ""


async def test_python_shows_a_traceback_of_the_code_alone_and_lives_on(call):
    await call(python, code="x = 5")
    told = await call(python, code="def f():\n    return 1 / 0\nf()")
    assert told["exit_code"] == 1
    assert "return 1 / 0" in told["output"]
    assert "ZeroDivisionError: division by zero" in told["output"]
    assert "interpreter.py" not in told["output"]
    assert (await call(python, code="1 +"))["exit_code"] == 1
    assert (await call(python, code="import sys; sys.exit(3)"))["exit_code"] == 3
    assert (await call(python, code="x"))["output"] == "5\n"


def impatient(call):
    """A caller in the same attempt that gives less time."""
    hasty = Caller(call.slot, timeout_s=3)
    hasty._memory = call._memory
    return hasty


async def test_python_is_interrupted_and_keeps_its_variables(call):
    await call(python, code="x = 5")
    told = await impatient(call)(python, code="print('begun')\nwhile True: pass")
    assert told["exit_code"] is None
    assert told["error"] == "stopped after 3 s"
    assert "begun" in told["output"]
    assert (await call(python, code="x"))["output"] == "5\n"


async def test_python_that_heeds_no_interrupt_is_ended_and_says_what_was_lost(call):
    await call(python, code="x = 5")
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    told = await impatient(call)(python, code=stubborn)
    assert "stopped after 3 s; the interpreter ended, its variables are lost" in told["error"]
    assert (await call(python, code="1 + 1"))["output"] == "2\n"


async def test_python_that_ends_itself_is_started_again(call):
    await call(python, code="x = 5")
    told = await call(python, code="import os; print('bye', flush=True); os._exit(7)")
    assert told["output"] == "bye\n"
    assert "its variables are lost" in told["error"]
    assert "NameError" in (await call(python, code="x"))["output"]


async def test_python_shows_what_child_processes_print_and_forks_do_no_harm(call):
    told = await call(
        python, code="import os, subprocess\nsubprocess.run(['echo', 'child'])\nprint('parent')"
    )
    assert told["output"] == "child\nparent\n"
    await call(python, code="pid = os.fork()")
    assert (await call(python, code="pid > 0"))["output"] == "True\n"


async def test_python_sees_the_workspace(call):
    await call(write_file, path="helper.py", content="value = 7\n")
    assert (await call(python, code="import helper; helper.value"))["output"] == "7\n"


async def test_files_are_written_and_read_back(call):
    text = "first\nzwölf\n\nlast"
    written = await call.result(write_file, path="a/b.txt", content=text)
    assert written.content == {"path": "a/b.txt", "bytes": len(text.encode())}
    assert written.files_changed == ["a/b.txt"]
    assert await call(read_file, path="a/b.txt") == text
    assert await call(read_file, path="a/b.txt", first_line=4) == "last"


async def test_a_range_says_where_to_go_on(call):
    await call(write_file, path="n", content="".join(f"line {i}\n" for i in range(1, 11)))
    told = await call(read_file, path="n", first_line=3, line_count=2)
    assert told == "line 3\nline 4\n[lines 3 to 4 of 10; go on with first_line=5]"
    assert "10 lines" in (await call(read_file, path="n", first_line=11))["error"]


async def test_a_long_file_is_read_by_lines_that_fit(call):
    await call(write_file, path="n", content="".join(f"{i:099}\n" for i in range(1000)))
    told = await call(read_file, path="n")
    assert told.endswith("[lines 1 to 80 of 1000; go on with first_line=81]")


async def test_what_cannot_be_read_or_written_is_told(call):
    assert "No such file" in (await call(read_file, path="none"))["error"]
    assert "directory" in (await call(read_file, path="."))["error"].lower()
    assert not (await call.result(write_file, path="/proc/none/x", content="")).success


async def test_an_edit_replaces_exact_text_that_stands_once(call):
    await call(write_file, path="a.py", content="x = 1\ny = 1\n")
    assert (await call.result(edit_file, path="a.py", old="x = 1", new="x = 2")).files_changed == ["a.py"]
    assert await call(read_file, path="a.py") == "x = 2\ny = 1\n"
    assert "stands 2 times" in (await call(edit_file, path="a.py", old=" = ", new=""))["error"]
    assert "stands 0 times" in (await call(edit_file, path="a.py", old="", new="z"))["error"]
    assert "other white space" in (await call(edit_file, path="a.py", old="x  =  2", new=""))["error"]


async def test_many_edits_are_all_made_or_none(call):
    await call(write_file, path="a.py", content="one two three")
    edits = [{"old": "one", "new": "1"}, {"old": "1 two", "new": "1 2"}]
    assert await call(edit_many, path="a.py", edits=edits) == {"path": "a.py", "replaced": 2}
    assert await call(read_file, path="a.py") == "1 2 three"
    failing = [{"old": "three", "new": "3"}, {"old": "four", "new": "4"}]
    assert "edit 2: `old` stands 0 times" in (await call(edit_many, path="a.py", edits=failing))["error"]
    assert await call(read_file, path="a.py") == "1 2 three"


async def test_an_edit_keeps_bytes_that_are_no_text(call):
    await call(terminal, command=r"printf 'a\xff\xfeb' > raw")
    await call(edit_file, path="raw", old="b", new="c")
    assert (await call(terminal, command="od -An -tx1 raw"))["output"].split() == ["61", "ff", "fe", "63"]


FILES = (
    "mkdir -p src/deep .git .hid && touch src/a.py src/deep/b.py c.py .hid/d.py .git/e.py 'sp ace.py' n.txt"
)


async def test_files_are_listed_by_glob(call):
    await call(terminal, command=FILES)
    assert await call(list_files, pattern="*.py") == {
        "matches": [".hid/d.py", "c.py", "sp ace.py", "src/a.py", "src/deep/b.py"],
        "more": False,
    }
    assert (await call(list_files, pattern="src/*.py"))["matches"] == ["src/a.py"]
    assert (await call(list_files, pattern="*.py", path="src"))["matches"] == ["a.py", "deep/b.py"]
    assert (await call(list_files, pattern="none*"))["matches"] == []
    assert "No such file" in (await call(list_files, path="none"))["error"]


async def test_a_glob_is_expanded_and_nothing_else_in_it(call):
    assert (await call(list_files, pattern="$(touch made) `touch made` ; touch made; *"))["matches"] == []
    assert (await call(list_files))["matches"] == []


async def test_a_long_list_says_that_there_is_more(call):
    await call(terminal, command=f"touch f{{1..{MAX_MATCHES + 1}}}")
    listed = await call(list_files)
    assert (len(listed["matches"]), listed["more"]) == (MAX_MATCHES, True)


@pytest.mark.parametrize("programs", ["all of them", "without ripgrep"])
async def test_lines_are_found_alike_with_and_without_ripgrep(call, programs):
    if programs == "without ripgrep":
        hide = 'rg() { return 127; }; command() { [[ $2 != rg ]] && builtin command "$@"; }'
        await call.slot.exec(hide, shell="files")
    lines = "import os\\nvalue = 12\\n"
    await call(
        terminal,
        command=f"{FILES}; printf '{lines}' | tee src/a.py .hid/d.py .git/e.py n.txt; "
        r"printf 'value = 1\0' > binary; echo 'src/' > .gitignore",
    )
    assert await call(search_files, pattern=r"^value\s=\s\d+$", files="*.py") == {
        "matches": [".hid/d.py:2:value = 12", "src/a.py:2:value = 12"],
        "more": False,
    }
    assert (await call(search_files, pattern="12", path="n.txt"))["matches"] == ["n.txt:2:value = 12"]
    assert (await call(search_files, pattern="-e nothing"))["matches"] == []
    assert (await call(search_files, pattern="(unclosed"))["error"]
    assert "No such file" in (await call(search_files, pattern="x", path="none"))["error"]


async def test_git_shows_commits_and_logs(call):
    assert "not a git repository" in (await call(git_status))["error"]
    await call(terminal, command="git init -q -b main . && printf 'one\\n' > a.txt && mkdir sub")
    assert await call(git_status) == {"branch": "No commits yet on main", "changes": ["?? a.txt"]}
    committed = await call(git_commit, message="Begin")
    assert committed["files"] == ["a.txt"]
    assert committed["commit"].endswith(" Begin")
    await call(terminal, command="git mv a.txt b.txt; printf 'two\\n' >> b.txt; echo 'ü' > 'ü x'; cd sub")
    assert (await call(git_status))["changes"] == ["RM b.txt <- a.txt", "?? ü x"]
    await call(git_commit, message="Rename\n\nBody")
    assert (await call(git_status))["changes"] == []
    log = await call(git_log, count=1)
    assert log.endswith("agent: Rename")
    assert (await call(git_diff)) == "no changes"
    assert "+two" in await call(git_diff, against="HEAD~1", paths=["../b.txt"])
    assert "revision" in (await call(git_diff, against="nowhere"))["error"]
    assert (await call(git_commit, message="Nothing"))["error"]


async def test_git_commits_only_the_paths_asked_for(call):
    await call(
        terminal,
        command="git init -q . && touch a b && git config user.email me@x && git config user.name me",
    )
    assert (await call(git_commit, message="A", paths=["a"]))["files"] == ["a"]
    assert (await call(git_status))["changes"] == ["?? b"]
    assert " me: A" in await call(git_log)


TESTS = """
import pytest
def test_good(): pass
class TestC:
    @pytest.mark.parametrize("n", [1, 2])
    def test_bad(self, n): assert n == 1, "n is too large"
"""


async def test_failing_tests_are_named_with_their_reason(call):
    await call(write_file, path="tests/test_a.py", content=TESTS)
    told = await call(run_tests)
    assert (told["exit_code"], told["counts"]) == (1, {"passed": 2, "failed": 1})
    (failure,) = told["failures"]
    assert failure["id"] == "tests/test_a.py::TestC::test_bad[2]"
    assert "n is too large" in failure["message"]
    assert (await call(run_tests, targets=["tests/test_a.py::test_good"]))["counts"] == {"passed": 1}
    assert (await call(run_tests, keyword="bad and 2", stop_at_first=True))["counts"] == {"failed": 1}


async def test_tests_that_do_not_run_tell_pytests_own_words(call):
    told = await call(run_tests)
    assert (told["exit_code"], "no tests ran" in told["output"]) == (5, True)
    assert "file or directory not found" in (await call(run_tests, targets=["none.py"]))["output"]
    await call(write_file, path="test_b.py", content="import nothing_there")
    told = await call(run_tests)
    assert told["counts"] == {"error": 1}
    assert "nothing_there" in told["failures"][0]["details"]


async def test_no_tool_is_shipped_without_a_test_here():
    tested = set(globals())
    assert {tool.name for tool in resolve_tools(TOOLSETS)} - tested == {"todo"}
