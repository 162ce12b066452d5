r"""JSON of any text Python can hold.

A model may write half of a surrogate pair as an escape (``"\ud83d"``), which JSON allows and UTF-8 does not.
msgspec refuses it, and one such argument must not cost a record, so the standard library takes what is left.
"""

import json
from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    """Return a value, dataclasses included, as one line of JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def decode(line: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is none.
    """
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return json.loads(line)
