"""Repository tasks: unsolved at the start, solved by their solutions, judged without what the agent left."""

import json
import subprocess
import sys

import pytest

from environments.items import item_key
from environments.swe_env import SweEnv, SweEnvConfig
from environments.swe_rows import shipped_tasks
from rollouts.store import TrajectoryStore
from tests.environments.rolling import roll_out, sandboxes
from tests.rollouts.chat_server import chat_server, runs, says
from tests.rollouts.test_command_line import lachesis
from trajectories.errors import ConfigError

TASKS = {task["id"]: task for task in shipped_tasks()}


def applying(patch):
    return f"git apply --whitespace=nowarn - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"


@pytest.mark.parametrize("name", TASKS)
async def test_every_task_is_solved_by_its_solution_and_by_nothing_less(name, local):
    task, env = TASKS[name], SweEnv(SweEnvConfig())
    solved = await roll_out(env, task, local, applying(task["patch"]))
    assert (solved.error, solved.reward) == (None, 1.0), solved.messages
    untouched = await roll_out(env, task, local)
    assert (untouched.error, untouched.reward) == (None, 0.0)
    assert untouched.metrics["pass_to_pass"] == 1.0
    assert untouched.metrics["fail_to_pass"] == 0.0


@pytest.mark.docker
@pytest.mark.parametrize("name", ["durations", "table_of_contents", "todo_cli"])
async def test_tasks_are_judged_alike_in_containers(name):
    task, env = TASKS[name], SweEnv(SweEnvConfig())
    async with sandboxes("docker") as backend:
        assert (await roll_out(env, task, backend, applying(task["patch"]))).reward == 1.0
        assert (await roll_out(env, task, backend)).reward == 0.0


async def test_breaking_what_worked_is_not_paid(local):
    task = TASKS["lru_cache"]
    breaking = "sed -i 's/at least 1/too small/; s/raise ValueError/print/' lru/cache.py"
    trajectory = await roll_out(SweEnv(SweEnvConfig()), task, local, applying(task["patch"]), breaking)
    assert trajectory.reward == 0.0
    assert trajectory.metrics["fail_to_pass"] == 1.0
    assert trajectory.metrics["pass_to_pass"] < 1.0


async def test_the_agent_sees_one_commit_and_no_hidden_test(local):
    look = "git log --oneline --all | wc -l; git status --short; ls tests"
    trajectory = await roll_out(SweEnv(SweEnvConfig()), TASKS["lru_cache"], local, look)
    (said,) = (message.content for message in trajectory.messages if message.role == "tool")
    assert "test_cache.py" in said and "test_recency.py" not in said
    assert '"1\\ntest_cache.py\\n"' in said


def swe_row(**changes):
    """Write a task as the data set has it: lists in JSON, the code elsewhere."""
    task = TASKS["intervals"]
    row = {key: task[key] for key in ("instance_id", "problem_statement", "patch", "test_patch")}
    tests = {key: json.dumps(task[key]) for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    return {**row, **tests, "repo": "owner/name", "base_commit": "v1", **changes}


@pytest.fixture
def clones(tmp_path):
    """A folder with a clone whose newest commit holds the solution."""
    task, folder = TASKS["intervals"], tmp_path / "clones/owner/name"
    for name, text in task["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "-C", str(folder)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for patch in (None, task["patch"]):
        if patch:
            subprocess.run([*git, "apply", "-"], input=patch.encode(), check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "commit"], check=True)
    subprocess.run([*git, "tag", "v1", "HEAD~1"], check=True)
    return tmp_path / "clones"


def dataset(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def datasets_folder(tmp_path, *rows):
    import datasets

    datasets.Dataset.from_list(list(rows)).to_parquet(str(tmp_path / "rows" / "train.parquet"))
    return str(tmp_path / "rows")


@pytest.mark.parametrize("written", [dataset, datasets_folder])
async def test_rows_of_swe_bench_are_checked_out_from_clones(written, local, tmp_path, clones):
    row = swe_row()
    env = SweEnv(SweEnvConfig(dataset=written(tmp_path, row), repositories=clones))
    await env.setup()
    (item,) = env.items
    assert item_key(item) == "intervals"
    assert (await roll_out(env, item, local)).reward == 0.0
    assert (await roll_out(env, item, local, applying(row["patch"]))).reward == 1.0


@pytest.mark.docker
async def test_rows_of_swe_bench_are_judged_in_their_image(tmp_path):
    """The image holds the repository where the workspace is, with a history that tells the solution."""
    files = {f"testbed/{name}": text for name, text in TASKS["intervals"]["files"].items()}
    (tmp_path / "intervals").mkdir()
    steps = ["FROM lachesis-test", "COPY testbed /testbed", "RUN chown -R 1000:1000 /testbed"]
    for name, text in {**files, "Dockerfile": "\n".join(steps)}.items():
        (tmp_path / "intervals" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "intervals" / name).write_text(text)
    row = swe_row()
    image = f"context:{tmp_path}/{{instance_id}}"
    env = SweEnv(SweEnvConfig(dataset=dataset(tmp_path, row), image=image))
    await env.setup()
    (item,) = env.items
    async with sandboxes("docker", workspace="/testbed", read_only=False) as backend:
        assert (await roll_out(env, item, backend)).reward == 0.0
        assert (await roll_out(env, item, backend, applying(row["patch"]))).reward == 1.0


@pytest.mark.parametrize(
    "row, settings, message",
    [
        (swe_row(), {}, "where is the code of intervals"),
        (swe_row(repo="../x"), {"repositories": "."}, "holds no clone ../x"),
        (swe_row(), {"image": "{version}"}, "rows have no field 'version'"),
        (swe_row(FAIL_TO_PASS="[]"), {}, "FAIL_TO_PASS"),
        (swe_row(FAIL_TO_PASS="test_x (app.Tests)"), {}, "FAIL_TO_PASS"),
        (swe_row(FAIL_TO_PASS='["test_x (app.Tests)"]'), {}, "is no test"),
        (swe_row(base_commit="--output=/x"), {}, "base_commit"),
        (swe_row(files={"../x": ""}), {}, "is no path inside the repository"),
    ],
)
async def test_rows_that_cannot_work_are_refused_before_anything_runs(tmp_path, row, settings, message):
    env = SweEnv(SweEnvConfig(dataset=dataset(tmp_path, row), **settings))
    with pytest.raises(ConfigError, match=message):
        await env.setup()


async def test_a_test_patch_that_does_not_apply_is_the_rows_fault(local):
    task = {**TASKS["intervals"], "test_patch": TASKS["ledger"]["patch"]}
    trajectory = await roll_out(SweEnv(SweEnvConfig()), task, local)
    error = trajectory.error
    assert (trajectory.reward, error.boundary, error.retryable) == (
        None,
        "reward",
        False,
    )
    assert "test_patch" in trajectory.error.message


def test_the_time_for_tests_must_fit_into_the_time_for_the_reward():
    with pytest.raises(ValueError, match="reward_timeout_s must exceed tests_timeout_s"):
        SweEnvConfig(tests_timeout_s=100.0, reward_timeout_s=100.0)


@pytest.mark.parametrize("command", ["process", "evaluate"])
async def test_the_command_line_rolls_out_the_shipped_tasks(command, tmp_path):
    def knowing(messages):
        if messages[-1]["role"] == "tool":
            return says("Done.")
        (task,) = (task for task in TASKS.values() if task["problem_statement"] in messages[-1]["content"])
        return runs(applying(task["patch"]))

    async with chat_server(knowing) as url:
        code, _, err = await lachesis(
            *(command, "--run.groups", "2", "--env.group_size", "1", "--run.output_dir", str(tmp_path)),
            *("--model.kind", "openai", "--model.base_url", url, "--model.name", "handy"),
            *("--sandbox.options", json.dumps({"python": sys.prefix})),
            script="environments/swe_env.py",
        )
    assert code == 0, err
    (records,) = tmp_path.glob("*/trajectories.jsonl")
    with TrajectoryStore(records) as store:
        assert [trajectory.reward for trajectory in store] == [1.0, 1.0]
