"""Terminal tasks: judged by the sandbox's state, undone at the start, done by the solution."""

import pytest

from backends import create_backend
from environments.agent_loop import Transcript
from environments.reward import ToolContext
from environments.terminal_env import TerminalEnv, TerminalEnvConfig
from environments.terminal_families import FAMILIES
from environments.terminal_tasks import generate_tasks
from trajectories.errors import ConfigError
from trajectories.messages import Message


@pytest.fixture
async def backend():
    async with create_backend("local") as backend:
        yield backend


async def reward(env, item, backend, command=None):
    async with backend.acquire("task") as slot:
        await env.setup_workspace(item, slot)
        if command:
            assert (await slot.exec(command)).exit_code == 0, command

        async def same_slot():
            return slot

        said = Transcript([Message.user("go"), Message.assistant("I have done it all.")])
        return (await env.compute_reward(item, said, ToolContext(same_slot, 60.0))).value


TASKS = [(tier, family) for tier, families in FAMILIES.items() for family in families]


@pytest.mark.parametrize("tier", FAMILIES)
async def test_every_task_is_undone_at_the_start_and_done_by_its_solution(tier, backend):
    env = TerminalEnv(TerminalEnvConfig())
    for item in generate_tasks("test", [tier], 3 * len(FAMILIES[tier]), without=set()):
        assert item["tier"] == tier
        assert await reward(env, item, backend) == 0.0, item["prompt"]
        assert await reward(env, item, backend, item["solution"]) == 1.0, item["prompt"]


async def test_what_the_agent_defines_in_its_shell_does_not_fool_the_checks(backend):
    env = TerminalEnv(TerminalEnvConfig())
    item = {"prompt": "Create a directory named x.", "checks": ["test -d x"]}
    cheat = "test() { true; }; alias test=true; export PATH=/workspace:$PATH; echo true > test; chmod +x test"
    assert await reward(env, item, backend, cheat) == 0.0


async def test_items_are_the_same_for_the_same_seed_and_evaluation_holds_others():
    first, again, other = (
        TerminalEnv(TerminalEnvConfig(seed=seed, generated_items=90)) for seed in (1, 1, 2)
    )
    for env in (first, again, other):
        await env.setup()
    assert first.items == again.items
    assert first.items != other.items
    ids = [item["id"] for item in first.items + first.eval_items]
    assert len(set(ids)) == len(ids) == 90 + 22


async def test_items_come_in_seeded_order_each_once_before_any_comes_again():
    env = TerminalEnv(TerminalEnvConfig(generated_items=12))
    await env.setup()
    epochs = [[(await env.get_next_item())["id"] for _ in range(12)] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(item["id"] for item in env.items)
    assert epochs[0] != epochs[1]


def test_asking_for_more_tasks_than_there_are_is_refused():
    with pytest.raises(
        ConfigError, match=r"env\.generated_items: there are not 1000000 different easy tasks"
    ):
        generate_tasks("x", ["easy"], 1_000_000, without=set())


def test_the_prompt_marks_what_only_steers():
    config = TerminalEnvConfig(ephemeral_system_prompt="steer", worked_examples=1)
    prompt = TerminalEnv(config).prompt({"prompt": "do it"})
    assert [m.role for m in prompt.messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert prompt.ephemeral == [0, 1, 2, 3, 4]
    written = TerminalEnvConfig(system_prompt="be careful", worked_examples=1)
    assert TerminalEnv(written).prompt({"prompt": "do it"}).ephemeral == [1, 2, 3, 4]
