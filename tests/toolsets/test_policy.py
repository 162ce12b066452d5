"""The policy's settings: read from a file or in place, wrong ones refused by name before anything runs."""

import pytest
from pydantic import ValidationError

from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from rollouts.load_settings import load_settings
from trajectories.errors import ConfigError

POLICY = """
commands:
  block: ["rm -rf /", dd]
paths: {confine: true, protect: [tests/**]}
tools:
  terminal: {calls: 20, timeout_s: 60}
budget: {tokens: 50000, cost_usd: 0.5, prices: {prompt: 1.0, sampled: 4.0}}
max_tool_turns: 8
"""


def test_a_policy_is_read_from_a_file(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    policy = EnvConfig(policy_file=str(path)).policy
    assert policy.commands.block == ["rm -rf /", "dd"]
    assert policy.tools["terminal"].calls == 20
    assert policy.budget.prices.sampled == 4.0


def test_a_policy_file_is_named_by_a_flag(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    flags = ["--env.policy_file", str(path), "--model.path", "m"]
    assert load_settings(EnvConfig, "x", flags, None).env.policy.max_tool_turns == 8


def test_a_policy_is_written_in_place():
    assert EnvConfig(policy={"max_tool_turns": 2}).policy.max_tool_turns == 2


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"comands": {}}, "policy.comands"),
        ({"commands": {"block": ["rm '"]}}, "policy.commands.block.0"),
        ({"commands": {"block": [""]}}, "policy.commands.block.0"),
        ({"tools": {"terminal": {"calls": -1}}}, "policy.tools.terminal.calls"),
        ({"budget": {"seconds": 0}}, "policy.budget.seconds"),
    ],
)
def test_a_wrong_policy_is_refused_by_name(policy, complaint):
    with pytest.raises(ValidationError) as refused:
        EnvConfig(policy=policy)
    assert complaint in [".".join(map(str, error["loc"])) for error in refused.value.errors()]


@pytest.mark.parametrize("content", ["- a\n", "just text", "a: [", "\x00"])
def test_a_file_that_is_no_policy_is_refused(tmp_path, content):
    path = tmp_path / "policy.yaml"
    path.write_text(content)
    with pytest.raises(ValidationError, match=r"policy\.yaml"):
        EnvConfig(policy_file=str(path))


def test_a_policy_has_one_source():
    with pytest.raises(ValidationError, match="not both"):
        EnvConfig(policy={"max_tool_turns": 2}, policy_file="policy.yaml")
    with pytest.raises(ValidationError, match=r"cannot read nowhere\.yaml"):
        EnvConfig(policy_file="nowhere.yaml")


def test_limits_of_a_tool_that_is_not_there_are_refused():
    class Env(BaseAgentEnv):
        name = "e"
        toolsets = ("terminal",)

        def format_prompt(self, item):
            return "go"

        async def compute_reward(self, item, result, ctx):
            return 0.0

    with pytest.raises(ConfigError, match=r"unknown tool 'termnal'; did you mean 'terminal'"):
        Env(EnvConfig(policy={"tools": {"termnal": {"calls": 1}}}))
