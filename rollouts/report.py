"""What is written for people and scripts to read when something has been measured."""

from pathlib import Path
from typing import Any

import msgspec


def write_report(path: Path, content: Any) -> None:
    """Write dataclasses and plain data as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
