"""Repository tasks: unsolved at the start, solved by their solutions, judged without what the agent left."""

import pytest

from environments.swe_env import SweEnv, SweEnvConfig
from environments.swe_rows import shipped_tasks
from tests.environments.rolling import roll_out, sandboxes

TASKS = {task["id"]: task for task in shipped_tasks()}


def applying(patch):
    return f"git apply --whitespace=nowarn - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
async def backend(request):
    async with sandboxes(request.param) as backend:
        yield backend


@pytest.fixture
async def local():
    async with sandboxes("local") as backend:
        yield backend


@pytest.mark.parametrize("name", TASKS)
async def test_every_task_is_solved_by_its_solution_and_by_nothing_less(name, local):
    task, env = TASKS[name], SweEnv(SweEnvConfig())
    solved = await roll_out(env, task, local, applying(task["patch"]))
    assert (solved.error, solved.reward) == (None, 1.0), solved.messages
    untouched = await roll_out(env, task, local)
    assert (untouched.error, untouched.reward) == (None, 0.0)
    assert untouched.metrics["pass_to_pass"] == 1.0
    assert untouched.metrics["fail_to_pass"] == 0.0
