"""Tools: the schema is the signature's, and arguments that don't fit are told to the model."""

import time
from typing import Literal

import pytest

from toolsets.governed import ReadPath, ShellCommand, WritePath
from toolsets.registry import TOOLSETS, Toolset, resolve_tools
from toolsets.todo import todo
from toolsets.tool import ArgumentsRefused, ToolCallContext, ToolResult, tool
from trajectories.errors import ConfigError


@tool(runs_in="host")
async def forecast(
    context: ToolCallContext, city: str, days: int = 1, unit: Literal["C", "F"] = "C"
) -> ToolResult:
    """Tell the weather.

    Looks no further than a week ahead.

    Args:
        city: Where.
        days: How many days.
        unit: Of temperatures.
    """
    return ToolResult(f"{city} {days} {unit}")


def test_the_schema_comes_from_signature_and_docstring():
    assert forecast.schema == {
        "type": "function",
        "function": {
            "name": "forecast",
            "description": "Tell the weather.\nLooks no further than a week ahead.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where."},
                    "days": {"type": "integer", "default": 1, "description": "How many days."},
                    "unit": {
                        "type": "string",
                        "enum": ["C", "F"],
                        "default": "C",
                        "description": "Of temperatures.",
                    },
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "argument 'city' is missing"),
        ({"city": "Bern", "dyas": 3}, "unknown argument 'dyas'"),
        ({"city": "Bern", "days": "soon"}, "argument 'days': "),
        ({"city": 3}, "argument 'city': "),
        ({"city": "Bern", "unit": "K"}, "argument 'unit': "),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments, complaint):
    with pytest.raises(ArgumentsRefused) as refusal:
        forecast.validated(arguments)
    assert complaint in str(refusal.value)


async def test_a_tool_is_called_with_its_defaults():
    context = ToolCallContext("task", None, 1.0, "key")
    assert (await forecast(context, forecast.validated({"city": "Bern"}))).content == "Bern 1 C"


def test_every_shipped_tool_describes_itself_and_its_parameters():
    for each in resolve_tools(TOOLSETS):
        assert each.schema["function"]["description"]
        for name, parameter in each.schema["function"]["parameters"]["properties"].items():
            assert parameter.get("description"), f"{each.name}.{name}"


def test_toolsets_compose_each_tool_once():
    names = [each.name for each in resolve_tools(["files", "coding"])]
    assert len(set(names)) == len(names)
    assert {"terminal", "python", "read_file"} <= set(names)


def test_an_unknown_toolset_names_the_near_one():
    with pytest.raises(ConfigError, match=r"unknown toolset 'terminl'; did you mean 'terminal'"):
        resolve_tools(["terminl"])


def test_a_cycle_of_includes_is_shown():
    cycle = {"a": Toolset(includes=["b"]), "b": Toolset(includes=["a"])}
    with pytest.raises(ConfigError, match="a includes b includes a"):
        resolve_tools(["a"], cycle)


def test_an_unavailable_toolset_is_left_out_of_what_includes_it():
    sets = {"weather": Toolset([forecast]), "both": Toolset(includes=["weather"])}
    assert resolve_tools(["both"], sets) == [forecast]
    assert resolve_tools(["both"], sets, unavailable={"weather": "no API key"}) == []


def test_toolsets_and_single_tools_can_be_disabled():
    names = [each.name for each in resolve_tools(["coding"], disabled=["files", "python", "terminal"])]
    assert "start_job" in names
    assert not {"read_file", "python", "terminal"} & set(names)
    with pytest.raises(ConfigError, match=r"unknown toolset or tool 'reed_file'; did you mean 'read_file'"):
        resolve_tools(["files"], disabled=["reed_file"])


def test_a_tool_says_what_it_does_with_commands_and_paths():
    @tool()
    async def install(
        context: ToolCallContext, script: ShellCommand, sources: list[ReadPath], target: WritePath, note: str
    ) -> ToolResult:
        """Install."""
        return ToolResult("")

    uses = {name: governed.use for name, governed in install.governed.items()}
    assert uses == {"script": "command", "sources": "read", "target": "write"}


def test_nested_arguments_are_described_where_they_are_used_and_checked():
    (parameter,) = [todo.schema["function"]["parameters"]["properties"]["items"]]
    (items, _) = parameter["anyOf"]
    assert items["items"]["properties"]["status"]["enum"] == ["open", "doing", "done"]
    assert "$ref" not in str(todo.schema)
    with pytest.raises(ArgumentsRefused, match=r"items\.0\.status"):
        todo.validated({"items": [{"task": "x", "status": "perhaps"}]})


async def test_the_deadline_runs_from_the_start_of_the_call():
    context = ToolCallContext("task", None, 10.0, "key", started=time.monotonic() - 4)
    assert 0 < context.remaining_s < 6.01
    late = ToolCallContext("task", None, 1.0, "key", started=time.monotonic() - 4)
    assert 0 < late.remaining_s < 0.01


def test_two_tools_of_one_name_are_refused():
    @tool(runs_in="host")
    async def forecast(context: ToolCallContext) -> ToolResult:
        """Tell another weather."""
        return ToolResult("")

    sets = {"one": Toolset([globals()["forecast"]]), "two": Toolset([forecast])}
    with pytest.raises(ConfigError, match="two different tools are named 'forecast'"):
        resolve_tools(["one", "two"], sets)
