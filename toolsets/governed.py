"""Types of arguments that a policy looks into; for the model they are plain text.

A tool says in its signature what it does with an argument (``path: WritePath``). So the policy knows what to
check without knowing the tool.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args


@dataclass(frozen=True, slots=True)
class Governed:
    """Marks an argument, or the entries of a list, in its annotation."""

    use: Literal["command", "read", "write"]
    base: Literal["workspace", "terminal"] = "workspace"
    """Where a relative path begins: at the workspace, or where the agent's shell has gone."""


ShellCommand = Annotated[str, Governed("command", "terminal")]
"""Text that the agent's shell evaluates."""
ReadPath = Annotated[str, Governed("read")]
"""A path in the sandbox that is read."""
WritePath = Annotated[str, Governed("write")]
"""A path in the sandbox that is written, created or removed."""
TerminalPath = Annotated[str, Governed("read", "terminal")]
"""A path that is read, relative to where the agent's shell is."""


def governed_by(annotation: Any) -> Governed | None:
    """Return what an annotation says of its argument; None where the policy need not look."""
    for part in get_args(annotation):
        if isinstance(part, Governed):
            return part
        if found := governed_by(part):
            return found
    return None
