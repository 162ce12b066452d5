"""Where an environment's groups go: one contract over the native wire and Atropos'."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol, TypeVar

from rollouts.api.client import ApiError, RolloutClient
from rollouts.api.scored_group import ScoredGroup
from rollouts.api.wire import Orders

T = TypeVar("T")


class Sink(Protocol):
    """A rollout API as one environment sees it. Calls wait for a server that is away and restarts."""

    async def orders(self, in_flight: int) -> Orders:
        """Give a sign of life, registering where need be; returns what the server wants."""
        ...

    async def push(self, group: ScoredGroup) -> None:
        """Hand a group over; returns once the server has it."""
        ...

    async def leave(self) -> None:
        """Tell that the environment goes."""
        ...


class NativeSink:
    """A server of ours."""

    def __init__(
        self,
        client: RolloutClient,
        name: str,
        instance: str,
        *,
        weight: float,
        min_allocation: float | None,
        group_size: int,
    ):
        self._client = client
        self._name = name
        self._instance = instance
        self._weight = weight
        self._min_allocation = min_allocation
        self._group_size = group_size
        self._env_id: int | None = None

    async def orders(self, in_flight: int) -> Orders:
        """Send a heartbeat."""
        return await self._as_registered(lambda env_id: self._client.heartbeat(env_id, in_flight))

    async def push(self, group: ScoredGroup) -> None:
        """Push."""
        await self._as_registered(lambda env_id: self._client.push(env_id, group))

    async def leave(self) -> None:
        """Deregister."""
        if self._env_id is not None:
            await self._client.leave(self._env_id)

    async def _as_registered(self, call: Callable[[int], Awaitable[T]]) -> T:
        """Call under our id; a server that lost its registrations gives a new one."""
        try:
            return await call(await self._registered())
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._env_id = None
            return await call(await self._registered())

    async def _registered(self) -> int:
        if self._env_id is None:
            answer = await self._client.register(
                self._name,
                instance=self._instance,
                weight=self._weight,
                min_allocation=self._min_allocation,
                group_size=self._group_size,
            )
            self._env_id = answer.env_id
        return self._env_id
