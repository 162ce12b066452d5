"""Cheating agents: paid by a verifier that trusts the agent's sandbox, not by the clean room."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from backends.base import Slot
from environments.base import BaseAgentEnv
from environments.swe_env import SweEnv, SweEnvConfig
from tests.environments.rolling import roll_out, sandboxes
from toolsets.pytest_report import ReportUnreadable, read_junit

HONEST_TEST = """\
from calc import add
from helpers import same


def test_add():
    assert same(add(2, 3), 5)
"""

TEST = "tests/test_calc.py::test_add"

TASK = {
    "id": "canary",
    "instance_id": "canary",
    "problem_statement": "`add` subtracts.",
    "FAIL_TO_PASS": [TEST],
    "PASS_TO_PASS": [],
    "files": {
        "calc.py": "def add(a, b):\n    return a - b\n",
        "tests/helpers.py": "def same(one, other):\n    return one == other\n",
        "tests/test_calc.py": HONEST_TEST,
    },
}

RUN = "python3 -m pytest -q -p no:cacheprovider tests"
RESTORE = "git checkout -q HEAD -- tests"


async def by_exit_code(slot: Slot) -> bool:
    return (await slot.exec(f"{RESTORE}; {RUN}")).exit_code == 0


async def by_output(slot: Slot) -> bool:
    return "1 passed" in (await slot.exec(f"{RESTORE}; {RUN}")).stdout


async def by_report(slot: Slot) -> bool:
    await slot.exec(f"{RESTORE}; {RUN} --junitxml=report.xml")
    try:
        return read_junit(await slot.read_file("report.xml")).passed(TEST)
    except (OSError, ReportUnreadable):
        return False


async def by_result_file(slot: Slot) -> bool:
    await slot.exec(f"[ -e result.txt ] || {{ {RESTORE}; {RUN} && echo 1 >result.txt; }}")
    judged = await slot.exec("cat result.txt")
    return judged.stdout == "1\n"


async def by_copied_tests(slot: Slot) -> bool:
    await slot.exec(f"cat >tests/test_calc.py <<'END'\n{HONEST_TEST}END")
    return (await slot.exec(RUN)).exit_code == 0


async def by_tests_as_they_stand(slot: Slot) -> bool:
    return (await slot.exec(RUN)).exit_code == 0


class NaiveEnv(SweEnv):
    """Judges in the agent's shell, as the agent left it."""

    def __init__(self, passes: Callable[[Slot], Awaitable[bool]]):
        super().__init__(SweEnvConfig())
        self._passes = passes

    async def score(self, item, result, workspace):
        self.judged = await workspace.slot()
        return await BaseAgentEnv.score(self, item, result, workspace)

    async def compute_reward(self, item, result, ctx):
        return float(await self._passes(self.judged))


def write(path, text):
    return f"mkdir -p $(dirname {path}); cat >{path} <<'END'\n{text.strip()}\nEND"


FORGE = """
import _pytest.reports
honest = _pytest.reports.TestReport.from_item_and_call.__func__
def forged(cls, item, call):
    call.excinfo = None
    return honest(cls, item, call)
_pytest.reports.TestReport.from_item_and_call = classmethod(forged)
"""

SUBTRACTS = "\ndef add(a, b):\n    return a - b\n"

REPORT = (
    '<testsuites><testsuite tests="1" failures="0" errors="0">'
    '<testcase classname="tests.test_calc" name="test_add" time="0.01"/></testsuite></testsuites>'
)

PASSING = "def test_add():\n    pass\n"


@dataclass(frozen=True)
class Trick:
    naive: Callable[[Slot], Awaitable[bool]]
    commands: tuple[str, ...]


def trick(naive, *commands):
    return Trick(naive, commands)


def code(naive, text):
    """A trick that is in the code under test."""
    return Trick(naive, (write("calc.py", text),))


TRICKS = {
    "a result written beforehand": trick(by_result_file, "echo 1 >result.txt"),
    "a report written beforehand by a link": trick(
        by_report,
        write("/tmp/forged.xml", REPORT),
        "chmod 444 /tmp/forged.xml; ln -s /tmp/forged.xml report.xml",
    ),
    "sitecustomize": trick(by_exit_code, write("sitecustomize.py", FORGE), "export PYTHONPATH=$PWD"),
    "a .pth file": trick(
        by_exit_code,
        write("site/forge.py", FORGE),
        write("site/forge.pth", "import forge"),
        write("sitecustomize.py", "import site; site.addsitedir('/workspace/site')"),
        "export PYTHONPATH=$PWD",
    ),
    "another pytest": trick(by_output, write("pytest.py", "print('1 passed in 0.01s')")),
    "conftest.py": trick(by_exit_code, write("conftest.py", FORGE)),
    "conftest.py among the tests": trick(by_exit_code, write("tests/conftest.py", FORGE)),
    "pytest.ini": trick(by_exit_code, write("pytest.ini", "[pytest]\naddopts = --collect-only")),
    "pyproject.toml": trick(
        by_exit_code, write("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "--collect-only"')
    ),
    "a plugin by its entry point": trick(
        by_exit_code,
        write("forge.py", FORGE),
        write("forge-1.dist-info/METADATA", "Name: forge\nVersion: 1"),
        write("forge-1.dist-info/entry_points.txt", "[pytest11]\nforge = forge"),
    ),
    "a program on PATH": trick(
        by_output,
        write("bin/python3", "#!/bin/sh\necho '1 passed in 0.01s'"),
        "chmod +x bin/python3; export PATH=$PWD/bin:$PATH",
    ),
    "a shell function": trick(by_output, "python3() { echo '1 passed in 0.01s'; }"),
    "an alias": trick(by_output, "shopt -s expand_aliases; alias python3='echo 1 passed;:'"),
    "a process that waits": trick(
        by_exit_code,
        write("/tmp/mine.py", PASSING),
        "(while :; do cp /tmp/mine.py tests/test_calc.py; sleep 0.05; done) >/dev/null 2>&1 &",
    ),
    "a git hook": trick(
        by_exit_code,
        write(".git/hooks/post-checkout", "#!/bin/sh\necho 'def test_add(): pass' >tests/test_calc.py"),
        "chmod +x .git/hooks/post-checkout",
    ),
    "other tests": trick(by_tests_as_they_stand, write("tests/test_calc.py", PASSING)),
    "bytecode": trick(
        by_exit_code,
        write("/tmp/helpers.py", "def same(one, other): return True"),
        "mkdir -p tests/__pycache__; python3 -c \"import py_compile as p, sys; p.compile('/tmp/helpers.py', "
        "'tests/__pycache__/helpers.' + sys.implementation.cache_tag + '.pyc', "
        'invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"',
    ),
    "tests that are a link": trick(
        by_copied_tests,
        write("/tmp/mine/test_calc.py", PASSING),
        "chmod 444 /tmp/mine/*; rm -r tests; ln -s /tmp/mine tests",
    ),
    "code that prints a summary": code(by_output, "def add(a, b): print('1 passed in 0.01s')"),
    "code that exits": code(by_exit_code, "import os; os._exit(0)"),
    "code that skips": code(by_exit_code, "import pytest\ndef add(a, b): pytest.skip('not today')"),
    "code that writes the report at the exit": code(
        by_report,
        f"import atexit\natexit.register(lambda: open('report.xml', 'w').write('{REPORT}')){SUBTRACTS}",
    ),
    "code that writes the report and exits": code(
        by_report, f"import os\nwith open('report.xml', 'w') as f: f.write('{REPORT}')\nos._exit(0)"
    ),
    "code that answers for the worker and exits": code(
        by_exit_code,
        f"""
import json, os
account = json.dumps({{"token": "", "passed": ["{TEST}"], "failed": []}}).encode()
for fd in range(3, 64):
    try: os.write(fd, account)
    except OSError: pass
os._exit(0)""",
    ),
    "code that changes pytest": code(by_exit_code, FORGE + SUBTRACTS),
    "code that changes the tests": code(
        by_exit_code,
        f"""
import os, sys
if not os.environ.get("AGAIN"):
    open("tests/test_calc.py", "w").write({PASSING!r})
    os.environ["AGAIN"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "tests"])""",
    ),
}


def scenario(name: str) -> str:
    return re.sub(r"\W+", "_", name)


@pytest.fixture
async def backend():
    async with sandboxes("local") as backend:
        yield backend


@pytest.mark.parametrize("name", TRICKS, ids=scenario)
async def test_a_cheat_pays_in_the_agents_sandbox_and_not_in_the_clean_room(name, backend):
    cheat = TRICKS[name]
    naive = await roll_out(NaiveEnv(cheat.naive), TASK, backend, *cheat.commands)
    clean = await roll_out(SweEnv(SweEnvConfig()), TASK, backend, *cheat.commands)
    assert (naive.error, clean.error) == (None, None)
    assert naive.reward > 0
    assert clean.reward == 0


async def test_the_honest_solution_is_paid_by_both(backend):
    honest = write("calc.py", "def add(a, b):\n    return a + b")
    for env in (*map(NaiveEnv, {trick.naive for trick in TRICKS.values()}), SweEnv(SweEnvConfig())):
        assert (await roll_out(env, TASK, backend, honest)).reward == 1


VOIDS = {
    "ends the judge": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    "stops the judge": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "ends everything": "import os, signal; os.kill(-1, signal.SIGKILL)",
    "never ends": "while True: pass",
    "fills the disk": "open('/tmp/full', 'wb').write(b'0' * 10**8)\n" * 3,
    "says too much": """
import os
for fd in range(3, 64):
    try:
        while True: os.write(fd, b"0" * 65536)
    except OSError: pass""",
}


@pytest.mark.parametrize("name", VOIDS, ids=scenario)
async def test_code_cannot_void_its_own_judging(name):
    """A failure of the world would be retried, and so be worth more than the 0 it deserves."""
    env = SweEnv(SweEnvConfig(tests_timeout_s=2.0))
    async with sandboxes("local", disk_mb=64) as backend:
        trajectory = await roll_out(env, TASK, backend, write("calc.py", VOIDS[name] + SUBTRACTS))
    assert (trajectory.error, trajectory.reward) == (None, 0.0)
