"""Verdicts on tests: what passed did so in full, and whatever goes wrong is told apart."""

import pytest

from environments.pytest_verdict import run_tests
from environments.reward import ToolContext
from tests.environments.rolling import sandboxes
from trajectories.errors import ConfigError, RewardError


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
async def slot(request):
    async with sandboxes(request.param) as backend, backend.acquire("judge") as slot:
        yield slot


async def verdict(slot, tests, files, **options):
    for path, text in files.items():
        await slot.write_file(path, text.encode())

    async def same():
        return slot

    return await run_tests(ToolContext(same, 100.0), tests, **{"timeout_s": 30.0, **options})


ALL_KINDS = """
import unittest
import pytest

@pytest.fixture
def broken():
    raise RuntimeError

@pytest.fixture
def breaks_later():
    yield
    raise RuntimeError

def test_good(): pass
def test_bad(): assert False
def test_skipped(): pytest.skip("no")
@pytest.mark.xfail
def test_xfailed(): assert False
def test_setup(broken): pass
def test_teardown(breaks_later): pass
@pytest.mark.parametrize("text", ["a b", "x[1]", "é", "::"])
def test_many(text): assert text != "x[1]"
class TestCase(unittest.TestCase):
    def test_good(self): self.assertEqual(1, 1)
    def test_bad(self): self.assertEqual(1, 2)
"""


async def test_only_a_test_that_passed_in_full_has_passed(slot):
    names = [
        "good",
        "bad",
        "skipped",
        "xfailed",
        "setup",
        "teardown",
        "many[a b]",
        "many[x[1]]",
        "many[::]",
        "gone",
    ]
    tests = [f"tests/test_a.py::test_{name}" for name in names]
    tests += [
        "tests/test_a.py::TestCase::test_good",
        "tests/test_a.py::TestCase::test_bad",
        "tests/test_no.py::test_b",
    ]
    told = await verdict(slot, tests, {"tests/test_a.py": ALL_KINDS})
    passed = {"test_good", "test_many[a b]", "test_many[::]", "TestCase::test_good"}
    assert told.passed == {f"tests/test_a.py::{name}" for name in passed}
    assert told.share(tests[:2]) == 0.5


async def test_a_file_that_cannot_be_imported_fails_alone(slot):
    files = {"test_a.py": "import nothing_like_it\ndef test(): pass", "test_b.py": "def test(): pass"}
    assert (await verdict(slot, ["test_a.py::test", "test_b.py::test"], files)).passed == {"test_b.py::test"}


async def test_a_file_that_changes_the_next_one_spoils_the_verdict(slot):
    spoil = "open('tests/test_b.py', 'w').write('def test(): pass')\ndef test(): pass"
    files = {"tests/test_a.py": spoil, "tests/test_b.py": "def test(): assert False"}
    told = await verdict(slot, ["tests/test_a.py::test", "tests/test_b.py::test"], files)
    assert told.passed == frozenset()
    assert told.notes == ["tests/test_a.py: the tests were changed while they ran"]


async def test_a_new_conftest_spoils_the_verdict_where_it_is_watched(slot):
    files = {"test_a.py": "open('conftest.py', 'w').write('')\ndef test(): pass"}
    assert not (await verdict(slot, ["test_a.py::test"], files, watched=["conftest.py"])).passed


async def test_a_process_left_behind_does_not_reach_the_next_file(slot):
    leave = "import subprocess\ndef test(): subprocess.Popen(['setsid', 'sleep', '987'])"
    look = """
import subprocess
def test():
    assert "987" not in subprocess.getoutput("cat /proc/[0-9]*/cmdline")
"""
    tests = ["test_a.py::test", "test_b.py::test"]
    assert (await verdict(slot, tests, {"test_a.py": leave, "test_b.py": look})).passed == set(tests)


async def test_what_hangs_has_not_passed_and_the_time_is_kept(slot):
    files = {"test_a.py": "def test_a(): pass\ndef test_b():\n    while True: pass"}
    told = await verdict(slot, ["test_a.py::test_a", "test_a.py::test_b"], files, timeout_s=5.0)
    assert (told.passed, told.notes) == (frozenset(), ["test_a.py: the time was up"])


async def test_import_paths_options_and_settings_are_used(slot):
    files = {
        "src/mine.py": "",
        "pytest.ini": "[pytest]\nmarkers = some: kind\naddopts = --strict-markers",
        "tests/test_a.py": "import mine, pytest\n@pytest.mark.some\ndef test(): pass\ndef test_later(): 0",
    }
    options = {"import_paths": ["src"], "options": ["-k", "not later"]}
    tests = ["tests/test_a.py::test", "tests/test_a.py::test_later"]
    told = await verdict(slot, tests, files, **options)
    assert told.passed == {"tests/test_a.py::test"}


@pytest.mark.parametrize("python, reason", [("no-python", "no-python"), ("bash", "could not run tests")])
async def test_a_sandbox_that_cannot_run_tests_is_the_worlds_failure(slot, python, reason):
    with pytest.raises(RewardError, match=reason):
        await verdict(slot, ["test_a.py::test"], {"test_a.py": ""}, python=python)


async def test_a_python_without_pytest_is_the_worlds_failure(slot):
    """An isolated environment has the interpreter and nothing else."""
    await slot.exec("python3 -m venv --without-pip /tmp/bare", shell="control")
    with pytest.raises(RewardError, match="No module named 'pytest'"):
        await verdict(slot, ["test_a.py::test"], {"test_a.py": ""}, python="/tmp/bare/bin/python3")


@pytest.mark.parametrize(
    "test", ["test_a", "../test_a.py::t", "/x/test_a.py::t", "-x.py::t", "a/../b.py::t", "app.T"]
)
async def test_what_is_no_node_id_is_refused_by_name(test):
    with pytest.raises(ConfigError, match="is no test"):
        await run_tests(ToolContext(None, 1.0), [test], timeout_s=1.0)
