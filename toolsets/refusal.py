"""A call that the policy does not let run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call was refused."""

    rule: str
    """The setting that says so, for counting: ``commands.block: rm -rf /``."""
    reason: str
    """For the model: what is refused, and what is allowed instead where that is not plain."""
    ends_rollout: bool = False
    """Whether a budget of the rollout is spent."""
