"""Every failure of a rollout, in one tree.

    LachesisError
    ├── ConfigError            ours: configuration or input is wrong; raised before any work starts
    ├── AlignmentError         ours: token arrays that must be parallel are not
    ├── LeaseExpired           ours: a sandbox slot was used after its release
    ├── ContextOverflow        the model's: the conversation no longer fits; the rollout stops and is scored
    └── RolloutError           the world's: recorded with its boundary, reward None, retried whole
        ├── ModelError         boundary "model"
        ├── SandboxError       boundary "sandbox"
        │   ├── SandboxUnavailable
        │   ├── SandboxDied
        │   └── CapacityExceeded
        ├── ToolError          boundary "tool"
        └── RewardError        boundary "reward"

What the model does wrong (a malformed call, an unknown tool, a failing command) is no exception: it is a
result that the model sees and that training may use. A failure of the world is never shown to the model and
never scored 0.
"""

from typing import ClassVar, Literal

Boundary = Literal["model", "sandbox", "tool", "reward"]


class LachesisError(Exception):
    """Root of every exception this project raises on purpose."""


class ConfigError(LachesisError):
    """Configuration or input that cannot work; the message names the field and the fix."""


class AlignmentError(LachesisError):
    """Token ids, logprobs and masks that must be parallel are not: a bug of ours, never padded over."""


class LeaseExpired(LachesisError):
    """A sandbox slot was used after its release: the sandbox may already be another task's."""


class ContextOverflow(LachesisError):
    """The prompt leaves no room to sample; the rollout ends with stop reason ``context_overflow``."""


class RolloutError(LachesisError):
    """A failure of the world at a named boundary.

    Args:
        message: What failed, in one line.
        retryable: Whether a fresh attempt of the whole rollout may succeed.
    """

    boundary: ClassVar[Boundary]

    def __init__(self, message: str, *, retryable: bool = True):
        super().__init__(message)
        self.retryable = retryable


class ModelError(RolloutError):
    """The model server failed, or answered what cannot be trusted."""

    boundary = "model"


class SandboxError(RolloutError):
    """The sandbox failed; never the output of a command that ran in it."""

    boundary = "sandbox"


class SandboxUnavailable(SandboxError):
    """No sandbox could be started."""


class SandboxDied(SandboxError):
    """A sandbox that was running is gone; what its last command did is unknown."""


class CapacityExceeded(SandboxError):
    """No free sandbox within the deadline."""


class ToolError(RolloutError):
    """A tool failed for a reason that is not the model's (its service is down, its code raised)."""

    boundary = "tool"


class RewardError(RolloutError):
    """The reward could not be computed; the trajectory stays unscored."""

    boundary = "reward"
