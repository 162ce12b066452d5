"""Path rules, asked of real sandboxes: each stops what it names, wherever links and dots lead."""

import pytest

from tests.toolsets.calling import Caller
from toolsets.command_paths import paths_in
from toolsets.files import edit_file, read_file, write_file
from toolsets.find import list_files
from toolsets.git import git_diff
from toolsets.governor import Governor
from toolsets.jobs import start_job
from toolsets.policy import Policy
from toolsets.shell_commands import analyse
from toolsets.terminal import terminal

pytestmark = pytest.mark.asyncio(loop_scope="session")

SETUP = """
mkdir -p src tests/deep secret sub && touch src/a.py tests/test_a.py secret/key 'sp ace'
ln -s /etc out; ln -s tests link; ln -s src/a.py alias; ln -s loop loop; ln -s ../secret/key sub/key
"""

PATHS = {"confine": True, "protect": ["tests/**", "*.lock"], "hide": ["secret"]}


async def refused(call: Caller, tool, **arguments) -> str | None:
    await call(terminal, command=SETUP)
    governor = Governor(Policy.model_validate({"paths": PATHS}))

    async def slot():
        return call.slot

    refusal = await governor.refusal(tool, tool.validated(arguments), 0, slot)
    return refusal.rule.removeprefix("paths.") if refusal else None


FILES = [
    (read_file, {"path": "src/a.py"}, None),
    (read_file, {"path": "tests/test_a.py"}, None),
    (read_file, {"path": "/workspace/src/../src/a.py"}, None),
    (read_file, {"path": "sp ace"}, None),
    (read_file, {"path": "/tmp/tool-results/0-0.txt"}, None),
    (read_file, {"path": "none/at/all"}, None),
    (read_file, {"path": "../etc/passwd"}, "confine"),
    (read_file, {"path": "/etc/passwd"}, "confine"),
    (read_file, {"path": "out/passwd"}, "confine"),
    (read_file, {"path": "/workspace2/x"}, "confine"),
    (read_file, {"path": "/tmp/../etc/passwd"}, "confine"),
    (read_file, {"path": "secret/key"}, "hide: secret"),
    (read_file, {"path": "sub/key"}, "hide: secret"),
    (list_files, {"path": "secret"}, "hide: secret"),
    (list_files, {}, None),
    (write_file, {"path": "src/new.py", "content": ""}, None),
    (write_file, {"path": "mytests/a.py", "content": ""}, None),
    (write_file, {"path": "tests/deep/new.py", "content": ""}, "protect: tests/**"),
    (write_file, {"path": "link/new.py", "content": ""}, "protect: tests/**"),
    (write_file, {"path": "deep/in/x.lock", "content": ""}, "protect: *.lock"),
    (write_file, {"path": "out/new", "content": ""}, "confine"),
    (edit_file, {"path": "src/../tests/test_a.py", "old": "a", "new": "b"}, "protect: tests/**"),
    (edit_file, {"path": "alias", "old": "a", "new": "b"}, None),
    (git_diff, {"paths": ["src", "../x"]}, "confine"),
    (git_diff, {"paths": ["src"]}, None),
    (git_diff, {}, None),
]


@pytest.mark.parametrize(("tool", "arguments", "rule"), FILES)
async def test_paths_of_file_tools(call, tool, arguments, rule):
    assert await refused(call, tool, **arguments) == rule


COMMANDS = [
    ("cat tests/test_a.py", None),
    ("echo x > src/b.py", None),
    ("echo x > /dev/null 2>&1", None),
    ("echo x > /tmp/x", None),
    ("echo /etc/passwd", None),
    ("grep /etc/ src/a.py", None),
    ("sed s/tests/x/ src/a.py", None),
    ("cp tests/test_a.py src/", None),
    ("rm -rf src", None),
    ("mkdir -p build/tests", None),
    ("cd src && touch b.py", None),
    ("echo x > ../x", "confine"),
    ("echo x >> out/x", "confine"),
    ("cat < /etc/passwd", "confine"),
    ("cd .. && ls", "confine"),
    ("cd src && touch ../../x", "confine"),
    ("cp src/a.py /", "confine"),
    ("cp -t / src/a.py", "confine"),
    ("tee ~/x", "confine"),
    ("dd if=src/a.py of=/x", "confine"),
    ("ln -s /etc/passwd p", "confine"),
    ("touch tests/new.py", "protect: tests/**"),
    ("echo x > link/new.py", "protect: tests/**"),
    ("cd tests && echo x > new.py", "protect: tests/**"),
    ("cd src; cd ../tests; touch x", "protect: tests/**"),
    ("rm t*/test_a.py", "protect: tests/**"),
    ("rm -rf tests", "protect: tests/**"),
    ("rm -rf .", "protect: tests/**"),
    ("mv tests old", "protect: tests/**"),
    ("sed -i s/a/b/ src/a.py tests/test_a.py", "protect: tests/**"),
    ("sed -i.bak -e s/a/b/ tests/test_a.py", "protect: tests/**"),
    ("chmod +x tests/test_a.py", "protect: tests/**"),
    ("truncate -s 0 poetry.lock", "protect: *.lock"),
    ("bash -c 'echo > tests/x'", "protect: tests/**"),
    ("find . -exec touch tests/x \\;", "protect: tests/**"),
    ("cat secret/key", "hide: secret"),
    ("cat sub/key", "hide: secret"),
    ("python3 secret/run.py", "hide: secret"),
    ("cat sec*/key", "hide: secret"),
    ("cp secret/key src", "hide: secret"),
    ('rm "$X"', "unclear"),
    ("cd $X; touch a", "unclear"),
    ("cat $X", None),
]


@pytest.mark.parametrize(("command", "rule"), COMMANDS)
async def test_paths_of_commands(call, command, rule):
    assert await refused(call, terminal, command=command) == rule


async def test_a_job_is_checked_like_a_command(call):
    assert await refused(call, start_job, command="touch tests/x") == "protect: tests/**"


async def test_a_relative_path_begins_where_the_terminal_has_gone(call):
    await call(terminal, command="mkdir tests; cd tests")
    assert await refused(call, terminal, command="touch x") == "protect: tests/**"
    await call(terminal, command="cd /workspace")
    assert await refused(call, terminal, command="touch x") is None


async def test_a_file_name_is_no_command(call):
    assert (
        await refused(call, write_file, path="$(touch /workspace/made)'\n;`touch made`", content="") is None
    )
    assert "made" not in (await call(list_files))["matches"]


async def test_a_command_line_says_what_it_does_with_each_file():
    uses = paths_in(analyse("cat < a > b; mv c d; cp e f; cd g && touch h; ls i"))
    assert [(path.text, path.use, path.base) for path in uses] == [
        ("a", "read", ""),
        ("b", "write", ""),
        ("c", "remove", ""),
        ("d", "remove", ""),
        ("e", "read", ""),
        ("f", "write", ""),
        ("g", "read", ""),
        ("h", "write", "g"),
        ("i", "mention", "g"),
    ]
