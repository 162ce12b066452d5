"""The environments that push, and who of them is alive.

An environment is alive while it gives a sign of life (a heartbeat, a push, a status request) every so often.
Only the living have a claim to room in the queue or to a share of a batch: one that died holds nobody up.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rollouts.api.group_store import GroupStore

STATE = "environments"


@dataclass(slots=True)
class Environment:
    """One registered environment."""

    env_id: int
    name: str
    unique_name: str
    """The name with a number, different for each registration."""
    instance: str | None
    """The client's own id for this process or run; who registers it again gets the same ``env_id``."""
    weight: float
    """Share of the room in the queue, relative to the other living environments."""
    min_allocation: float | None
    """Least share of a batch, from 0 to 1, while alive."""
    group_size: int
    max_token_length: int
    connected: bool = True
    last_seen: float = 0.0
    """Seconds since the epoch."""
    in_flight: int = 0
    """Groups it is rolling out, as of its last heartbeat."""


class Registry:
    """Environments by id; registrations outlive the server."""

    def __init__(self, store: GroupStore, heartbeat_timeout_s: float, clock: Callable[[], float] = time.time):
        self._store = store
        self._timeout_s = heartbeat_timeout_s
        self._clock = clock
        self._environments: list[Environment] = []

    async def open(self) -> None:
        """Read the registrations; all count as seen now, for they could not reach a server that was down."""
        if saved := await self._store.get_state(STATE):
            self._environments = msgspec.json.decode(saved, type=list[Environment])
            for environment in self._environments:
                environment.last_seen = self._clock()

    async def register(
        self,
        name: str,
        *,
        instance: str | None,
        weight: float,
        min_allocation: float | None,
        group_size: int,
        max_token_length: int,
    ) -> Environment:
        """Register an environment, or update the one with the same ``instance``."""
        known = next((e for e in self._environments if instance and e.instance == instance), None)
        same_name = sum(e.name == name for e in self._environments)
        environment = Environment(
            env_id=known.env_id if known else len(self._environments),
            name=name,
            unique_name=known.unique_name if known else f"{name}_{same_name}",
            instance=instance,
            weight=weight,
            min_allocation=min_allocation,
            group_size=group_size,
            max_token_length=max_token_length,
            last_seen=self._clock(),
        )
        self._environments[environment.env_id : environment.env_id + 1] = [environment]
        await self._save()
        return environment

    async def disconnect(self, env_id: int) -> bool:
        """Note that an environment has left; False where it was never there."""
        environment = self.get(env_id)
        if environment is None:
            return False
        environment.connected = False
        await self._save()
        return True

    async def clear(self) -> None:
        """Forget every environment."""
        self._environments = []
        await self._save()

    def get(self, env_id: int) -> Environment | None:
        """Return an environment."""
        return self._environments[env_id] if 0 <= env_id < len(self._environments) else None

    def seen(self, environment: Environment) -> None:
        """Note a sign of life."""
        environment.last_seen = self._clock()
        environment.connected = True

    def alive(self) -> list[Environment]:
        """Return the environments that are alive."""
        since = self._clock() - self._timeout_s
        return [e for e in self._environments if e.connected and e.last_seen >= since]

    def minimums(self) -> dict[int, float]:
        """Return the least share of a batch of each living environment that has one."""
        return {e.env_id: e.min_allocation for e in self.alive() if e.min_allocation}

    def share(self, environment: Environment) -> float:
        """Return the part of the queue's room this environment may fill, from 0 to 1.

        By its weight, but never less than its minimum: batches wait for that.
        """
        total = sum(e.weight for e in self.alive())
        by_weight = environment.weight / total if total else 1.0
        return max(by_weight, environment.min_allocation or 0.0)

    async def _save(self) -> None:
        await self._store.put_state(STATE, msgspec.json.encode(self._environments))
