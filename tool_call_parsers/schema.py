"""Types for values written as raw text, taken from the tool's JSON schema.

The schema decides, never the look of the value: ``02139`` is a string where a string is wanted. A value that
fits no allowed type stays the string it is and is reported.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from tool_call_parsers.json_body import decode_json
from trajectories.messages import ToolSchema

_INTEGER = re.compile(r"[ \t\r\n]*-?(?:0|[1-9][0-9]*)(?:\.0+)?[ \t\r\n]*")
_BOOLEANS = {"true": True, "false": False}
_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}

_KNOWN_TYPES = set(_JSON_TYPES.values())

_Json = dict[str, Any]


class ToolSchemas:
    """The tools a completion may call."""

    def __init__(self, tools: Sequence[ToolSchema] | None):
        self._parameters: dict[str, _Json] | None = None
        if tools is not None:
            functions = [cast(_Json, tool["function"]) for tool in tools]
            self._parameters = {tool["name"]: tool.get("parameters") or {} for tool in functions}
        self.names: Collection[str] | None = None if self._parameters is None else self._parameters.keys()
        """The names of the tools; None where they are not known."""

    def properties(self, tool: str) -> _Json:
        """Return the schemas of a tool's arguments by name; empty where unknown."""
        return cast(_Json, (self._parameters or {}).get(tool, {}).get("properties") or {})

    def typed(self, tool: str, key: str, raw: str) -> tuple[Any, str | None]:
        """Return the value that ``raw`` stands for, and what does not fit, where something does not."""
        root = (self._parameters or {}).get(tool, {})
        types = set(_types(self.properties(tool).get(key), root, depth=0))
        if not types:
            return raw, None
        for read in (_null, _integer, _number, _boolean, _container):
            fits, value = read(raw, types)
            if fits:
                return value, None
        if "string" in types:
            return raw, None
        wanted = " or ".join(sorted(types))
        return raw, f"The argument {key!r} of {tool!r} must be {wanted}, not {raw[:80]!r}."


def _types(schema: Any, root: _Json, depth: int) -> Iterator[str]:
    """Yield the JSON types a schema allows, a string for an unknown one; nothing where it does not say."""
    if not isinstance(schema, dict) or depth > 8:
        return
    given = cast(_Json, schema)
    named = given.get("type")
    for name in [named] if isinstance(named, str) else cast(list[str], named or []):
        yield name if name in _KNOWN_TYPES else "string"
    if given.get("nullable") is True:
        yield "null"
    if named is None:
        for value in [*given.get("enum", []), *([given["const"]] if "const" in given else [])]:
            yield _JSON_TYPES[type(value)]
    for branch in (*given.get("anyOf", []), *given.get("oneOf", []), *given.get("allOf", [])):
        yield from _types(branch, root, depth + 1)
    reference = given.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for part in reference[2:].split("/"):
            target = cast(_Json, target).get(part) if isinstance(target, dict) else None
        yield from _types(target, root, depth + 1)


def _null(raw: str, types: set[str]) -> tuple[bool, Any]:
    spellings = {"null"} if "string" in types else {"null", "None"}
    return "null" in types and raw.strip() in spellings, None


def _integer(raw: str, types: set[str]) -> tuple[bool, Any]:
    if not types & {"integer", "number"} or not _INTEGER.fullmatch(raw):
        return False, None
    if "." in raw and "integer" not in types:
        return False, None
    try:
        return True, int(raw.partition(".")[0])
    except ValueError:  # more digits than the interpreter converts
        return False, None


def _number(raw: str, types: set[str]) -> tuple[bool, Any]:
    value = decode_json(raw) if "number" in types else None
    return isinstance(value, float), value


def _boolean(raw: str, types: set[str]) -> tuple[bool, Any]:
    word = raw.strip().lower()
    return "boolean" in types and word in _BOOLEANS, _BOOLEANS.get(word)


def _container(raw: str, types: set[str]) -> tuple[bool, Any]:
    if not types & {"object", "array"}:
        return False, None
    value = decode_json(raw)
    fits = (isinstance(value, dict) and "object" in types) or (isinstance(value, list) and "array" in types)
    return fits, cast(Any, value)


def written(value: Any) -> str:
    """Write a value as raw text: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
