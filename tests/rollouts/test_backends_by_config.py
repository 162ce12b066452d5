"""The same environment runs on every backend, chosen by configuration alone; what dies is tried elsewhere."""

import asyncio
import json
import sys

import pytest

from environments.swe_env import SweEnv, SweEnvConfig
from environments.terminal_env import TerminalEnv, TerminalEnvConfig
from inference.scripted import ScriptedClient
from rollouts import runner as runner_module
from rollouts.attempt import World
from rollouts.config import SandboxConfig
from rollouts.connect import open_backend
from rollouts.runner import RunLimits, Runner
from rollouts.specs import plan_groups
from rollouts.store import TrajectoryStore
from tests.backends.host_processes import new_mark, sleeping, until
from tests.backends.modal_server import modal_server
from tests.backends.network import network_to
from tests.backends.nomad_server import nomad_server
from tests.backends.sshd import USER, sshd_with
from tests.environments.test_swe_env import applying
from trajectories.messages import Message, ToolCall

KINDS = [
    "local",
    pytest.param("docker", marks=pytest.mark.docker),
    "ssh",
    pytest.param("nomad", marks=pytest.mark.docker),
    "modal",
]


@pytest.fixture
async def sandbox(request, monkeypatch):
    """The `sandbox` section of a run's settings, with what it needs running."""
    match request.param:
        case "local":
            yield SandboxConfig()
        case "docker":
            yield SandboxConfig(backend="docker", options={"image": "lachesis-test"})
        case "ssh":
            with sshd_with() as server:
                yield SandboxConfig(backend="ssh", options=server.options)
        case "nomad":
            async with nomad_server() as server:
                options = {"address": server.url, "image": "lachesis-slots", "container_memory_mb": 1024}
                yield SandboxConfig(backend="nomad", options=options)
        case "modal":
            async with modal_server() as server:
                server.use(monkeypatch)
                yield SandboxConfig(backend="modal")


async def roll_out(config, items, script, path, env=None):
    env = env or TerminalEnv(TerminalEnvConfig())
    todo = iter(items)

    async def next_item():
        return next(todo)

    groups = await plan_groups("run", len(items), 1, 0, next_item)
    async with open_backend(config, 4) as backend:
        world = World(env, ScriptedClient(script), backend, "hash")
        with TrajectoryStore(path) as store:
            runner = Runner(world, store, RunLimits(4, 3, 4))
            await runner.run([spec for group in groups for spec in group.rollouts])
            return list(store)


def terminal(command):
    return Message.assistant(tool_calls=[ToolCall("call_0", "terminal", {"command": command})])


async def solvable(count):
    env = TerminalEnv(TerminalEnvConfig(generated_items=count, tier="easy"))
    await env.setup()
    return env.items[:count]


def solving(items):
    """Be a model that knows each task's solution."""
    solutions = {item["prompt"]: item["solution"] for item in items}

    def say(messages, tools):
        return (
            Message.assistant("Done.")
            if messages[-1].role == "tool"
            else terminal(solutions[messages[-1].content])
        )

    return say


@pytest.mark.parametrize("sandbox", KINDS, indirect=True)
async def test_the_same_environment_runs_on_every_backend(sandbox, tmp_path):
    items = await solvable(6)
    kept = await roll_out(sandbox, items, solving(items), tmp_path / "t.jsonl")
    assert [(t.reward, t.error, t.attempt) for t in kept] == [(1.0, None, 1)] * 6


@pytest.mark.docker
@pytest.mark.parametrize("sandbox", ["docker"], indirect=True)
async def test_a_task_can_name_its_image(sandbox, tmp_path):
    item = {"prompt": "Go.", "checks": ["command -v bwrap"], "solution": "true"}
    items = [{**item, "id": "with", "image": "lachesis-slots"}, {**item, "id": "without"}]
    kept = await roll_out(sandbox, items, solving(items), tmp_path / "t.jsonl")
    assert {t.item_key: t.reward for t in kept} == {"with": 1.0, "without": 0.0}


@pytest.mark.parametrize("sandbox", KINDS, indirect=True)
async def test_a_task_can_name_what_its_sandbox_may_use(sandbox, tmp_path):
    disk = {"prompt": "Go.", "checks": ["(($(df -m --output=size . | tail -1) <= 48))"], "solution": "true"}
    memory = {"prompt": "Go.", "checks": ["(($(ulimit -d) == 524288))"], "solution": "true"}
    item, bound = (memory, {"memory_mb": 512}) if sandbox.backend == "modal" else (disk, {"disk_mb": 48})
    items = [{**item, "id": "with", "resources": bound}, {**item, "id": "without"}]
    kept = await roll_out(sandbox, items, solving(items), tmp_path / "t.jsonl")
    assert {t.item_key: (t.reward, t.error) for t in kept} == {"with": (1.0, None), "without": (0.0, None)}


@pytest.mark.parametrize("sandbox", KINDS, indirect=True)
async def test_repository_tasks_run_on_every_backend(sandbox, tmp_path):
    """Local sandboxes alone need to be told of a Python with pytest; elsewhere the system has one."""
    if sandbox.backend == "local":
        sandbox = SandboxConfig(options={"python": sys.prefix})
    env = SweEnv(SweEnvConfig())
    await env.setup()
    items = [item for item in env.items if item["id"] in ("durations", "intervals")]

    def say(messages, tools):
        if messages[-1].role == "tool":
            return Message.assistant("Done.")
        (item,) = (item for item in items if item["problem_statement"] in messages[-1].content)
        return terminal(applying(item["patch"])) if item["id"] == "durations" else terminal("true")

    kept = await roll_out(sandbox, items, say, tmp_path / "t.jsonl", env)
    assert {t.item_key: (t.reward, t.error) for t in kept} == {
        "durations": (1.0, None),
        "intervals": (0.0, None),
    }


async def test_a_network_cut_mid_command_is_retried_elsewhere_and_never_seen(monkeypatch, tmp_path):
    monkeypatch.setattr(runner_module, "LONGEST_WAIT_S", 0.0)
    mark = new_mark()
    with sshd_with() as server:
        async with network_to(server.port) as network:

            def say(messages, tools):
                if messages[-1].role == "tool":
                    return Message.assistant("Done.")
                return terminal("mkdir done" if network.refuses else f"mkdir done; sleep {mark}")

            hosts = f"{USER}@127.0.0.1:{network.port},{USER}@127.0.0.1:{server.port}"
            options = {**server.options, "host": hosts, "check_host_key": False}
            item = {"id": "a", "prompt": "Make a folder.", "checks": ["test -d done"]}
            config = SandboxConfig(backend="ssh", options=options)
            running = asyncio.create_task(roll_out(config, [item], say, tmp_path / "t.jsonl"))
            await until(lambda: sleeping(mark))
            network.refuse()
            (kept,) = await running
            await until(lambda: not sleeping(mark))
    assert (kept.reward, kept.error, kept.attempt) == (1.0, None, 2)
    assert mark not in json.dumps([message.content for message in kept.messages])
