"""TRL's own tool loop over our tools: a sandbox an episode, none left, and rewards that look into it."""

import asyncio

import pytest

from backends.base import Slot
from environments.lookup_env import KEYS, LookupEnv, LookupEnvConfig
from rollouts.config import SandboxConfig
from toolsets.registry import TOOLSETS, resolve_tools
from toolsets.tool import ToolResult, tool
from trainers.trl_environments import TrlEnvironments
from trainers.trl_messages import as_dict
from trainers.trl_tools import trl_tool
from trajectories.errors import ConfigError, LeaseExpired
from trajectories.messages import Message, ToolCall

pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'environment_factory'", "ignore::FutureWarning")
GROUP, STEPS = 4, 3


@tool()
async def lookup(context, key: str) -> ToolResult:
    """Look a key up in the table.

    Args:
        context: The call.
        key: The key.
    """
    if key == "k1":
        raise OSError("the disk is gone")
    if key in KEYS:
        await context.sandbox.exec(f"echo {key} >> asked", timeout_s=60)
    return ToolResult(found(key))


def found(key: str) -> str:
    return key.replace("k", "v") if key in KEYS else "nothing"


class Digging(LookupEnv):
    """Looks keys up in the sandbox; rewards that some were, and what was said last."""

    def __init__(self):
        super().__init__(LookupEnvConfig(generated_items=16))
        self.sandboxes: list[Slot] = []
        self.scored: list[tuple[str, list[str], str, float]] = []

    def tools_of(self, toolsets):
        return [lookup]

    async def setup_workspace(self, item, slot):
        self.sandboxes.append(slot)

    async def compute_reward(self, item, result, ctx):
        asked = (await ctx.read_text("asked") or "").split()
        reward = len(asked) + 0.5 * result.answer.startswith("v")
        self.scored.append((item["id"], asked, result.answer, reward))
        return reward


def test_trl_runs_our_tools_in_a_sandbox_for_each_episode_and_rewards_what_stands_in_it(
    lookup_folder, tmp_path
):
    from transformers import AutoTokenizer
    from trl.chat_template_utils import qwen3_template

    from tests.trainers.trl_trainer import SpyingTrainer, cpu_config

    tokenizer = AutoTokenizer.from_pretrained(lookup_folder)
    tokenizer.response_template = qwen3_template
    env = Digging()
    with TrlEnvironments(env, 2 * GROUP, SandboxConfig(options={"warm": 0})) as environments:
        trainer = SpyingTrainer(
            model=str(lookup_folder),
            processing_class=tokenizer,
            args=cpu_config(tmp_path, max_steps=STEPS, learning_rate=1e-4, max_completion_length=40),
            train_dataset=environments.train_dataset,
            environment_factory=environments.factory,
            reward_funcs=environments.reward,
        )
        trainer.train()
        used = len(env.sandboxes)
        free = [environments.factory() for _ in range(2 * GROUP)]
        for environment in free:
            environment.reset(item_key="0-0")
            environment.lookup(key="k2")

    assert len(trainer.episodes) == STEPS * 2 * GROUP
    assert used > 2 * GROUP, "more than there are places, or none would have had to be given back"
    assert len(env.sandboxes) == used + 2 * GROUP, "every place is free again"
    scored = []
    for key, completion, reward in trainer.episodes:
        calls = [call["function"] for said in completion for call in said.get("tool_calls") or []]
        if any(call["arguments"].get("key") == "k1" for call in calls):
            assert reward != reward, "the world failed: no reward, and so no part in the baseline"
            continue
        results = [said["content"] for said in completion if said["role"] == "tool"]
        asked = [call["arguments"]["key"] for call in calls][: len(results)]
        assert results == [found(each) for each in asked]
        known = [each for each in asked if each in KEYS]
        scored.append((key, known, completion[-1].get("content") or "", reward))
    assert sorted(scored) == sorted(env.scored)


@pytest.mark.parametrize("each", resolve_tools(TOOLSETS), ids=lambda each: each.name)
def test_transformers_reads_of_each_tool_what_its_schema_says(each):
    from transformers.utils import get_json_schema

    read = get_json_schema(trl_tool(each).__get__(object()))["function"]
    wanted = each.schema["function"]
    assert (read["name"], read["description"]) == (wanted["name"], wanted["description"])
    parameters = wanted["parameters"].get("properties", {})
    assert list(read["parameters"].get("properties", {})) == list(parameters)
    assert read["parameters"].get("required", []) == wanted["parameters"].get("required", [])
    for name, parameter in parameters.items():
        assert read["parameters"]["properties"][name]["description"].startswith(parameter["description"])


def test_an_episode_that_was_not_scored_gives_its_sandbox_back_when_the_next_begins_or_training_ends():
    env = Digging()
    with TrlEnvironments(env, 1, SandboxConfig(options={"warm": 0})) as environments:
        environment = environments.factory()
        for row in environments.train_dataset.select(range(3)):
            environment.reset(**row)
            assert environment.lookup(key="k2") == "v2"
            assert "argument 'key' is missing" in environment.lookup(wrong="k2")
    assert len(env.sandboxes) == 3
    for slot in env.sandboxes:
        with pytest.raises(LeaseExpired):
            asyncio.run(asyncio.wait_for(slot.exec("true"), timeout=60))


def test_a_mistake_of_ours_in_one_scoring_ends_the_others():
    begun, ended = asyncio.Event(), []

    class Mistaken(Digging):
        async def score(self, item, result, workspace):
            if item["id"] == "0-0":
                await begun.wait()
                raise ConfigError("no such rubric")
            try:
                begun.set()
                await asyncio.sleep(60)
            finally:
                ended.append(item["id"])

    with TrlEnvironments(Mistaken(), 2, SandboxConfig(options={"warm": 0})) as environments:
        both = [environments.factory() for _ in range(2)]
        for number, environment in enumerate(both):
            environment.reset(item_key=f"0-{number}")
        said = [{"role": "assistant", "content": "v1"}]
        with pytest.raises(ConfigError, match="no such rubric"):
            environments.reward([said, said], both)
        assert ended == ["0-1"]


def test_the_dataset_keeps_the_calls_of_worked_examples_as_they_are():
    calls = [ToolCall("a", "terminal", {"command": "ls"}), ToolCall("b", "write_file", {"path": "x"})]
    examples = [Message.assistant(tool_calls=[call]) for call in calls]

    class WithExamples(Digging):
        def worked_examples(self):
            return [examples]

    env = WithExamples()
    env.config.worked_examples = 1
    with TrlEnvironments(env, 1, SandboxConfig(options={"warm": 0})) as environments:
        prompt = environments.train_dataset[0]["prompt"]
    assert prompt[:2] == [as_dict(message) for message in examples]
    assert prompt[0]["tool_calls"][0]["function"]["arguments"] == {"command": "ls"}


def test_what_trl_can_not_do_is_refused():
    env = Digging()
    env.config.toolset_chances = {"terminal": 0.5}
    with pytest.raises(ConfigError, match="toolset_chances"):
        TrlEnvironments(env, 1)
    with TrlEnvironments(Digging(), 1) as environments, pytest.raises(ConfigError, match="no item"):
        environments.factory().reset(item_key="nowhere")
