"""Drawn toolsets: by their chances, by group, the same again after a restart."""

from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from toolsets.distribution import draw_toolsets


def test_each_toolset_comes_with_its_own_chance():
    draws = [draw_toolsets({"files": 1.0, "git": 0.3, "todo": 0.0}, f"{i}") for i in range(2000)]
    assert all("files" in draw and "todo" not in draw for draw in draws)
    assert 0.25 < sum("git" in draw for draw in draws) / len(draws) < 0.35


def test_a_draw_depends_on_its_seed_alone():
    chances = {"a": 0.5, "b": 0.5, "c": 0.5}
    assert draw_toolsets(chances, "g") == draw_toolsets(dict(reversed(chances.items())), "g")


def test_an_agent_always_gets_something():
    assert draw_toolsets({"a": 0.0, "b": 0.0}, "g") == ["a"]
    assert {tuple(draw_toolsets({"a": 0.001, "b": 0.002}, f"{i}")) for i in range(20)} == {("b",)}


class Env(BaseAgentEnv):
    name = "e"

    def format_prompt(self, item):
        return "go"

    async def compute_reward(self, item, result, ctx):
        return 0.0


def test_groups_draw_for_themselves_and_an_environment_keeps_no_draw():
    config = EnvConfig(toolset_chances={"terminal": 0.5, "files": 0.5, "git": 0.5}, seed=3)
    one, other = Env(config), Env(config)
    drawn = {f"g{i}": one.toolsets_of(f"g{i}") for i in range(50)}
    assert {group: other.toolsets_of(group) for group in reversed(drawn)} == drawn
    assert len({tuple(names) for names in drawn.values()}) > 3
    assert Env(EnvConfig(toolset_chances=config.toolset_chances, seed=4)).toolsets_of("g1") is not None
