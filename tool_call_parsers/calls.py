"""From a decoded JSON value to a call, or to the reason why it is none."""

from collections.abc import Iterable
from typing import Any, cast

from tool_call_parsers.findings import Call, Fault, Item
from tool_call_parsers.json_body import decode_json
from trajectories.messages import Span


def call_from_json(
    value: Any, span: Span, *, arguments_keys: Iterable[str] = ("arguments",), advice: str
) -> Item:
    """Read ``{"name": …, "arguments": {…}}``.

    Args:
        value: The decoded JSON.
        span: The block it stands in.
        arguments_keys: Names the format may give the arguments.
        advice: The right form, added to what is wrong.
    """
    if not isinstance(value, dict):
        return Fault(
            span, "bad_structure", f"A call is a JSON object, not a list or a single value. {advice}"
        )
    call = cast(dict[str, Any], value)
    name = call.get("name")
    if not isinstance(name, str) or not (name := name.strip()):
        return Fault(span, "missing_name", f'The call has no "name" that is a non-empty string. {advice}')
    for key in arguments_keys:
        if key in call:
            break
    else:
        keys = " or ".join(f'"{key}"' for key in arguments_keys)
        return Fault(span, "bad_structure", f"The call of {name!r} has no {keys}. {advice}")
    arguments, mismatch = call[key], None
    if isinstance(arguments, str):
        arguments = decode_json(arguments)
        mismatch = f"{key!r} must be a JSON object, not a string that holds one. {advice}"
    if not isinstance(arguments, dict):
        return Fault(span, "bad_structure", f"{key!r} of {name!r} is not a JSON object. {advice}")
    native_id = call.get("id")
    if not isinstance(native_id, str):
        native_id = None
    return Call(span, name, cast(dict[str, Any], arguments), native_id, mismatch)


def call_from_arguments(name: str, value: Any, span: Span, native_id: str | None = None) -> Item:
    """Take a name and the decoded arguments that came with it."""
    if not isinstance(value, dict):
        return Fault(span, "bad_structure", f"The arguments of {name!r} are not a JSON object.")
    return Call(span, name, cast(dict[str, Any], value), native_id)
