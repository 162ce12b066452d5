"""The contract of every model client: one explicit session a conversation.

A session is never found again by comparing text prefixes: a client that guesses which conversation a request
continues mixes up siblings that share a beginning. The caller holds the session and extends it.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from trajectories.messages import Message, ToolSchema
from trajectories.turn import SamplingParams, Turn


@dataclass(frozen=True, slots=True)
class Completion:
    """What one model call gave."""

    message: Message
    turn: Turn


class Session(Protocol):
    """One conversation. Not safe for concurrent ``extend``; fork it instead."""

    async def extend(self, new_messages: list[Message], sampling: SamplingParams) -> Completion:
        """Append ``new_messages`` and sample the next assistant message.

        The first call may pass an empty list where the session was opened with messages. A call that raises
        or is cancelled leaves the session as it was before it.

        Raises:
            ModelError: The server failed or its answer is not to be trusted.
            ContextOverflow: The conversation leaves no room to sample a token.
        """
        ...

    def fork(self) -> "Session":
        """Return an independent session with the same history, sharing its memory."""
        ...


class ModelClient(Protocol):
    """A model that can hold conversations; safe to share between concurrent rollouts."""

    @property
    def model(self) -> str:
        """Name and, where known, revision or content hash of the model, as recorded in trajectories."""
        ...

    async def start(self) -> None:
        """Check that the model can be reached and used.

        Raises:
            ConfigError: It can't; the message names the setting and the fix.
        """
        ...

    async def close(self) -> None:
        """Release connections and memory; idempotent."""
        ...

    def session(
        self, trajectory_id: str, messages: list[Message], tools: list[ToolSchema]
    ) -> AbstractAsyncContextManager[Session]:
        """Open a conversation that begins with ``messages``; its tools are fixed.

        ``trajectory_id`` routes the session's calls to one replica, so that its prefix cache is hit.
        """
        ...
