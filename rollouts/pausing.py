"""A model client that can be held back while the weights behind it change.

Calls that were begun go on to their end; the next ones wait. A conversation so continues under the new policy
at a turn's boundary, where its record says which version sampled what.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inference.session import Completion, ModelClient, Session
from trajectories.messages import Message, ToolSchema
from trajectories.turn import SamplingParams


class PausingClient:
    """Another client's conversations, behind a gate."""

    def __init__(self, client: ModelClient):
        self._client = client
        self._open = asyncio.Event()
        self._open.set()

    def pause(self, paused: bool) -> None:
        """Hold new model calls back, or let them go on."""
        if paused:
            self._open.clear()
        else:
            self._open.set()

    async def ready(self) -> None:
        """Wait until model calls are let through."""
        await self._open.wait()

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._client.model

    async def start(self) -> None:
        """Start the client."""
        await self._client.start()

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    @asynccontextmanager
    async def session(
        self, trajectory_id: str, messages: list[Message], tools: list[ToolSchema]
    ) -> AsyncIterator[Session]:
        """Open a conversation whose calls wait at the gate."""
        async with self._client.session(trajectory_id, messages, tools) as session:
            yield _PausingSession(session, self)


class _PausingSession:
    def __init__(self, session: Session, client: PausingClient):
        self._session = session
        self._client = client

    async def extend(self, new_messages: list[Message], sampling: SamplingParams) -> Completion:
        await self._client.ready()
        return await self._session.extend(new_messages, sampling)

    def fork(self) -> Session:
        return _PausingSession(self._session.fork(), self._client)
