"""The contract of tools: a typed async function, its schema, and what a call of it returns.

A tool's first parameter is its `ToolCallContext`; the others are what the model may pass. Arguments that do
not fit are answered to the model (`ArgumentsRefused`), never coerced into a call it did not make. A tool
returns ``ToolResult`` for everything the model should see, a failing command included, and raises only where
the world failed.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

import msgspec
from docstring_parser import parse as parse_docstring
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from backends.base import Slot
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

    @classmethod
    def failed(cls, error: str) -> "ToolResult":
        """Build the answer to a call that could not do what it was asked."""
        return cls({"error": error}, success=False, error=error)

    def text(self, max_chars: int) -> str:
        """Return the content as the text of a tool message, its middle left out where it is too long."""
        text = self.content if isinstance(self.content, str) else msgspec.json.encode(self.content).decode()
        if len(text) <= max_chars:
            return text
        head, tail = text[: max_chars // 2], text[len(text) - max_chars // 2 :]
        return f"{head}\n[{len(text) - len(head) - len(tail)} characters left out]\n{tail}"


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """What a tool knows of the call it serves."""

    task_id: str
    slot: Slot | None
    """The rollout's sandbox; None for a tool that runs on the host."""
    timeout_s: float
    """How long the call may take."""
    idempotency_key: str
    """Unique to this call over all rollouts and attempts; pass it on to services that can use it."""

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
            "parameters": _without_titles(arguments.model_json_schema()),
        }
        return Tool(name, {"type": "function", "function": schema}, function, arguments, runs_in)

    return decorate


def _problem(details: Any) -> str:
    where = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        return f"unknown argument {where!r}"
    if details["type"] == "missing":
        return f"argument {where!r} is missing"
    return f"argument {where!r}: {details['msg']}"


def _without_titles(schema: Any) -> Any:
    """Drop the titles pydantic adds: they cost prompt tokens and tell the model nothing."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(part) for name, part in value.items()}
        if key == "properties"
        else _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
