"""The contract of tools: a typed async function, its schema, and what a call of it returns.

A tool's first parameter is its `ToolCallContext`; the others are what the model may pass. Arguments that do
not fit are answered to the model (`ArgumentsRefused`), never coerced into a call it did not make. A tool
returns ``ToolResult`` for everything the model should see, a failing command included, and raises only where
the world failed.
"""

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from docstring_parser import parse as parse_docstring
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from backends.base import Slot
from toolsets.governed import Governed, governed_by
from trajectories.messages import ToolSchema


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told of one call."""

    content: Any
    """Text, or anything that JSON can hold."""
    success: bool = True
    error: str | None = None
    """Why it failed, in one line; None on success."""
    files_changed: list[str] = field(default_factory=list)
    """Paths as the model named them."""
    cost_usd: float = 0.0
    """What the call cost, where a service charges for it."""
    refused_by: str | None = None
    """The rule of the policy that did not let it run."""

    @classmethod
    def failed(cls, error: str) -> "ToolResult":
        """Build the answer to a call that could not do what it was asked."""
        return cls({"error": error}, success=False, error=error)


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """What a tool knows of the call it serves."""

    task_id: str
    slot: Slot | None
    """The rollout's sandbox; None for a tool that runs on the host."""
    timeout_s: float
    """How long the call may take."""
    idempotency_key: str
    """``trajectory_id/attempt/turn/index``, unique over all calls; pass it on to services that can use it."""
    max_result_chars: int = 8000
    """How much of a result the model is shown; a tool that can is better off choosing what."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What tools keep between the calls of one attempt, each under its own name."""
    started: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """When the call must have ended, on the clock of `time.monotonic`."""
        return self.started + self.timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; never quite 0, so that what is late ends by its own time limit."""
        return max(self.deadline - time.monotonic(), 0.001)

    @property
    def sandbox(self) -> Slot:
        """The rollout's sandbox, for tools that declared that they run in one."""
        if self.slot is None:
            raise TypeError("this tool uses a sandbox: declare it with @tool(runs_in='slot')")
        return self.slot


class ArgumentsRefused(ValueError):
    """The model's arguments do not fit the tool; the message is written for the model."""


ToolFunction = Callable[..., Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model can call."""

    name: str
    schema: ToolSchema
    """The tool as OpenAI's API describes one."""
    function: ToolFunction
    arguments: type[BaseModel]
    runs_in: Literal["slot", "host"]
    governed: dict[str, Governed]
    """Arguments that a policy looks into, and what the tool does with them."""

    def validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them.

        Raises:
            ArgumentsRefused: They do not fit the schema.
        """
        try:
            model = self.arguments.model_validate(arguments)
        except ValidationError as error:
            problems = "; ".join(_problem(details) for details in error.errors(include_url=False))
            raise ArgumentsRefused(f"{self.name}: {problems}") from error
        return {name: getattr(model, name) for name in type(model).model_fields}

    async def __call__(self, context: ToolCallContext, arguments: dict[str, Any]) -> ToolResult:
        """Run the function on validated arguments."""
        return await self.function(context, **arguments)


def tool(*, runs_in: Literal["slot", "host"] = "slot") -> Callable[[ToolFunction], Tool]:
    """Make a tool of a typed async function; schema and description come from its signature and docstring."""

    def decorate(function: ToolFunction) -> Tool:
        documentation = parse_docstring(inspect.getdoc(function) or "")
        described = {parameter.arg_name: parameter.description for parameter in documentation.params}
        hints = get_type_hints(function, include_extras=True)
        _, *parameters = inspect.signature(function).parameters.values()
        fields: dict[str, Any] = {
            parameter.name: (
                hints[parameter.name],
                Field(
                    ... if parameter.default is parameter.empty else parameter.default,
                    description=described.get(parameter.name),
                ),
            )
            for parameter in parameters
        }
        name = function.__name__  # type: ignore[attr-defined]
        arguments = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        described_as = filter(None, (documentation.short_description, documentation.long_description))
        schema = {
            "name": name,
            "description": "\n".join(described_as),
            "parameters": _plain(arguments.model_json_schema(), {}),
        }
        found = {each.name: governed_by(hints[each.name]) for each in parameters}
        governed = {argument: kind for argument, kind in found.items() if kind}
        return Tool(name, {"type": "function", "function": schema}, function, arguments, runs_in, governed)

    return decorate


def _problem(details: Any) -> str:
    where = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        return f"unknown argument {where!r}"
    if details["type"] == "missing":
        return f"argument {where!r} is missing"
    return f"argument {where!r}: {details['msg']}"


def _plain(schema: Any, definitions: dict[str, Any]) -> Any:
    """Drop the titles pydantic adds, which cost prompt tokens, and put definitions where they are used."""
    if isinstance(schema, list):
        return [_plain(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", definitions)
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {
        key: {name: _plain(part, definitions) for name, part in value.items()}
        if key == "properties"
        else _plain(value, definitions)
        for key, value in schema.items()
        if key != "$defs" and not (key == "title" and isinstance(value, str))
    }
