"""A tool as a method that transformers reads a schema from."""

import inspect
import json
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from toolsets.tool import Tool


def trl_tool(tool: Tool) -> Callable[..., str]:
    """Return a method with the tool's name, typed parameters, and a docstring that describes each.

    transformers reads no typed dictionaries and models; where a tool has one, the parameter is a dict and its
    description ends with the schema. The method passes on whatever it is called with: what does not fit the
    tool is the toolbox's to tell the model.
    """

    def call(self: Any, /, **arguments: Any) -> str:
        return self._call(tool.name, arguments)

    _, *parameters = inspect.signature(tool.function).parameters.values()
    hints = get_type_hints(tool.function)
    schema = tool.schema["function"]
    described, typed = [], [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for parameter in parameters:
        hint = hints[parameter.name]
        plain = _plain(hint)
        properties = schema["parameters"]["properties"][parameter.name]
        rest = "" if plain == hint else f" JSON schema: {json.dumps(properties)}"
        described.append(f"    {parameter.name}: {properties.get('description', '')}{rest}")
        typed.append(parameter.replace(annotation=plain))
    call.__name__ = tool.name
    call.__doc__ = "\n".join([schema["description"], *(["", "Args:", *described] if described else [])])
    call.__annotations__ = {each.name: each.annotation for each in typed[1:]}
    call.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
    return call


def _plain(hint: Any) -> Any:
    """Return a type with dicts in the place of typed dictionaries and models."""
    if arguments := tuple(map(_plain, get_args(hint))):
        return reduce(or_, arguments) if isinstance(hint, UnionType) else get_origin(hint)[arguments]
    return dict if isinstance(hint, type) and issubclass(hint, dict | BaseModel) else hint
