"""Requirements: what is missing leaves one toolset out, with one line; a sandbox starts only to be asked."""

import pytest

from backends import FakeBackend, create_backend
from toolsets.registry import TOOLSETS, Toolset
from toolsets.requirements import find_unavailable
from trajectories.errors import SandboxUnavailable

NO_SANDBOXES = FakeBackend(failure=SandboxUnavailable("no sandboxes here"))


def of_toolsets(caplog):
    return [record.message for record in caplog.records if record.name.startswith("toolsets")]


async def test_what_the_host_lacks_is_told_in_one_line_without_a_sandbox(caplog):
    sets = {
        "weather": Toolset(check_requirements=lambda: "no API key", needs={"curl": "command -v curl"}),
        "fine": Toolset(),
        "both": Toolset(includes=["weather", "fine"]),
    }
    assert await find_unavailable(["both"], NO_SANDBOXES, sets) == {"weather": "no API key"}
    assert of_toolsets(caplog) == ["toolset weather is left out: no API key"]


async def test_what_the_sandbox_lacks_is_asked_of_it(caplog):
    sets = {
        "shell": Toolset(needs={"bash": "command -v bash"}),
        "odd": Toolset(needs={"bash": "command -v bash", "teleport": "command -v teleport", "x": "exit 7"}),
    }
    async with create_backend("local") as backend:
        missing = await find_unavailable(sets, backend, sets)
    assert missing == {"odd": "the sandbox has no teleport and no x"}
    assert of_toolsets(caplog) == ["toolset odd is left out: the sandbox has no teleport and no x"]


async def test_a_sandbox_without_pytest_disables_the_tests_toolset_alone():
    async with create_backend("local", python=None) as backend:
        without = {**TOOLSETS, "tests": Toolset(needs={"pytest": "false"})}
        found = await find_unavailable(["coding"], backend, without)
    assert found == {"tests": "the sandbox has no pytest"}


async def test_a_failing_sandbox_is_the_worlds_failure():
    with pytest.raises(SandboxUnavailable):
        await find_unavailable(["git"], NO_SANDBOXES)
