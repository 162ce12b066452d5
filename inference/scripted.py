"""A model client that says what it is told to: for tests, worked examples and dry runs.

It keeps the real session contract (explicit sessions, forks, a failed call changes nothing), so that what is
tested against it behaves the same against a model.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from inference.session import Completion
from trajectories.errors import ConfigError
from trajectories.messages import Message, ToolSchema
from trajectories.turn import SamplingParams, Turn

Reply = Message | Turn | Exception
"""What one call gives: a message, a whole turn, or an error to raise."""

Script = Callable[[list[Message], list[ToolSchema]], Reply | Awaitable[Reply]]
"""Decides on a reply from the conversation so far and its tools."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One model call as the client received it."""

    trajectory_id: str
    messages: list[Message]
    """The whole conversation the model was shown."""
    tools: list[ToolSchema]
    sampling: SamplingParams


class ScriptedClient:
    """Replays a script in every session.

    Args:
        script: The replies of one session in order, or a function that decides on each. An exception among
            them is raised at its place; the conversation stays as it was and the next call gets the next one.
        model: The name recorded in trajectories.
    """

    def __init__(self, script: Sequence[Reply] | Script, *, model: str = "scripted"):
        self._script = script
        self._model = model
        self.calls: list[ScriptedCall] = []
        """Every call of every session, in the order they came."""

    @property
    def model(self) -> str:
        """The name given to the client."""
        return self._model

    async def start(self) -> None:
        """Do nothing: a script is always ready."""

    async def close(self) -> None:
        """Do nothing: a script holds nothing."""

    @asynccontextmanager
    async def session(
        self, trajectory_id: str, messages: list[Message], tools: list[ToolSchema]
    ) -> AsyncIterator["ScriptedSession"]:
        """Open a conversation that plays the script from its beginning."""
        yield ScriptedSession(self, trajectory_id, messages, tools)

    async def reply(self, call: ScriptedCall, position: int) -> Turn:
        """Return the turn at ``position`` of the script.

        Raises:
            ConfigError: The script has no reply left.
            Exception: The one the script has there.
        """
        self.calls.append(call)
        if callable(self._script):
            said = self._script(call.messages, call.tools)
            reply = await said if inspect.isawaitable(said) else said
        elif position < len(self._script):
            reply = self._script[position]
        else:
            raise ConfigError(f"the script has {len(self._script)} replies, but one more was asked for")
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Turn):
            return reply
        return Turn(reply, "tool_calls" if reply.tool_calls else "stop", call.sampling)


class ScriptedSession:
    """One conversation of a `ScriptedClient`."""

    def __init__(
        self,
        client: ScriptedClient,
        trajectory_id: str,
        messages: list[Message],
        tools: list[ToolSchema],
        position: int = 0,
    ):
        self._client = client
        self._trajectory_id = trajectory_id
        self._messages = list(messages)
        self._tools = tools
        self._position = position

    async def extend(self, new_messages: list[Message], sampling: SamplingParams) -> Completion:
        """Append ``new_messages`` and give the script's next reply."""
        shown = [*self._messages, *new_messages]
        call = ScriptedCall(self._trajectory_id, shown, self._tools, sampling)
        position, self._position = self._position, self._position + 1
        turn = await self._client.reply(call, position)
        self._messages = [*shown, turn.message]
        return Completion(turn.message, turn)

    def fork(self) -> "ScriptedSession":
        """Return an independent session at the same place of the script."""
        return ScriptedSession(self._client, self._trajectory_id, self._messages, self._tools, self._position)
