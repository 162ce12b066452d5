"""Which tests pass, said by a run of pytest that the tested code finds hard to forge.

For use on a sandbox in which nothing of the agent's has run yet, see `CleanRoomEnv`. There the tested code
gets its first chance to cheat when the tests import it. It can't pass by ending the process, by printing a
summary, by writing a report, by leaving something for the exit or a process behind, by changing the tests,
nor by breaking pytest's assertions or its bookkeeping: `pytest_runner` tells how each is found out. What
remains: Python code shares its process with the tests, so code written against this very runner, which looks
for its objects in memory and tells tripwires from tests, could still lie; and objects that claim to equal
everything pass what compares with them, as anywhere. Tests that run the judged program as a process, or
compare its output on the host, leave neither way.
"""

import hashlib
import json
import posixpath
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.reward import ToolContext
from trajectories.errors import ConfigError, RewardError

GRACE_S = 25.0
"""For the runner to start, and to end by itself when the time is up."""

RUNNER = Path(__file__).with_name("pytest_runner.py")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the tests went."""

    passed: frozenset[str]
    """Node ids; a test that is not among them failed, was skipped, or is not there."""
    notes: list[str]
    """What was wrong with whole files: the time was up, pytest was tampered with."""

    def share(self, tests: Sequence[str]) -> float:
        """Return the part of ``tests`` that passed; 1 where there are none."""
        return sum(test in self.passed for test in tests) / len(tests) if tests else 1.0


def file_of_test(node_id: str) -> str:
    """Return the file of a test.

    Raises:
        ConfigError: It is not a node id such as ``tests/test_a.py::test_b`` inside the workspace.
    """
    file, found, _ = node_id.partition("::")
    if not found or not file.endswith(".py") or file != posixpath.normpath(file) or file[0] in "/.-":
        raise ConfigError(f"{node_id!r} is no test: write PATH.py::NAME, relative to the workspace")
    return file


async def run_tests(
    ctx: ToolContext,
    tests: Iterable[str],
    *,
    timeout_s: float,
    watched: Sequence[str] = (),
    import_paths: Sequence[str] = (".",),
    options: Sequence[str] = (),
    python: str = "python3",
) -> Verdict:
    """Run tests in the workspace, one process for each test file.

    A test file whose process does not end as agreed has no passed tests, so code that hangs or ends it fails.

    Args:
        ctx: The sandbox.
        tests: Pytest node ids.
        timeout_s: For all of them; what has not ended by then has not passed.
        watched: What else must not change while the tests run: names of files, such as ``conftest.py``, or
            paths of files and folders, such as ``./tests``.
        import_paths: Folders of the workspace that are put on the import path.
        options: Further options of pytest. Plugins are loaded only with ``-p``. Neither options nor the
            workspace's settings may change what counts as a test, or the tripwires are missed.
        python: The interpreter that has pytest.

    Raises:
        ConfigError: One of the tests is no node id.
        RewardError: No tests can be run there, such as for the lack of pytest.
        SandboxError: The sandbox failed.
    """
    ids = list(dict.fromkeys(tests))
    files: dict[str, list[int]] = {}
    for index, test in enumerate(ids):
        files.setdefault(file_of_test(test), []).append(index)
    workspace = await ctx.workspace()
    request = {
        "workspace": workspace,
        "paths": [posixpath.normpath(posixpath.join(workspace, path)) for path in import_paths],
        "files": files,
        "tests": ids,
        "watched": [*(f"./{file}" for file in files), *watched],
        "options": list(options),
        "timeout_s": timeout_s,
    }
    command = f"{shlex.quote(python)} -I -B -c {shlex.quote(RUNNER.read_text())} supervise"
    ran = await ctx.exec(command, stdin=json.dumps(request).encode(), timeout_s=timeout_s + GRACE_S)
    if not ran.stdout:
        last = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.exit_code}"]
        raise RewardError(f"the judge's sandbox could not run tests: {last[0]}")
    verdict = _revealed(ran.stdout)
    if verdict is None:
        return Verdict(frozenset(), ["the tested code ended or stopped the run"])
    if verdict["broken"]:
        raise RewardError(
            f"the judge's sandbox could not run tests: {verdict['broken']}; its {python} needs pytest"
        )
    passed = [test for test, mark in zip(ids, verdict["passed"], strict=True) if mark == "1"]
    return Verdict(frozenset(passed), verdict["notes"])


def _revealed(output: str) -> dict[str, Any] | None:
    """Return the verdict whose key hashes to the first line; what else was printed does not count."""
    commitment, *lines = output.splitlines() or [""]
    for line in lines:
        key, _, verdict = line.partition(" ")
        if hashlib.sha256(key.encode("utf-8", "replace")).hexdigest() == commitment:
            return json.loads(verdict)
    return None
