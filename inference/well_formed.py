"""Messages as tokenizers and servers can take them.

Arguments and tool output may hold half a surrogate pair, which no UTF-8 can say. What the model is shown has
U+FFFD in its place; the record keeps what was there.
"""

from typing import Any

import msgspec

from trajectories.messages import Message


def well_formed(message: Message) -> Message:
    """Return ``message``, with surrogates that form a pair joined and lone ones replaced in all its texts."""
    try:
        msgspec.json.encode(message)
    except UnicodeEncodeError:
        return msgspec.convert(_mended(msgspec.to_builtins(message)), Message)
    return message


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mended(item) for item in value]
    return value
