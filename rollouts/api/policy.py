"""Which policy the trainer has published, and whether its weights are being changed right now."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rollouts.api.group_store import GroupStore

STATE = "policy"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the trainer said last."""

    version: int = 0
    updating_until: float = 0.0
    """Environments make no new model calls before this time, in seconds since the epoch.

    It is a time and not a flag so that a trainer that dies in an update does not stop everything for good.
    """


class PolicyBoard:
    """The published policy; outlives the server."""

    def __init__(self, store: GroupStore, clock: Callable[[], float] = time.time):
        self._store = store
        self._clock = clock
        self._policy = Policy()

    async def open(self) -> None:
        """Read what was published last."""
        if saved := await self._store.get_state(STATE):
            self._policy = msgspec.json.decode(saved, type=Policy)

    @property
    def version(self) -> int:
        """Number of the newest policy."""
        return self._policy.version

    @property
    def updating(self) -> bool:
        """Whether weights are being changed."""
        return self._clock() < self._policy.updating_until

    async def publish(self, version: int, updating_s: float = 0.0) -> None:
        """Set the version, and for how long at most its weights are still on their way."""
        policy = Policy(version, self._clock() + updating_s if updating_s else 0.0)
        await self._store.put_state(STATE, msgspec.json.encode(policy))
        self._policy = policy
