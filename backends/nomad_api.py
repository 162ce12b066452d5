"""The few calls of Nomad's HTTP API that containers need, and processes in them over its exec stream.

The exec stream is a websocket of JSON messages (Nomad's client API, "exec allocation"): ``{"stdin": {"data":
BASE64}}`` and ``{"stdin": {"close": true}}`` one way; ``{"stdout": …}``, ``{"stderr": …}`` and ``{"exited":
true, "result": {"exit_code": N}}`` the other. One that ends without ``exited`` was cut.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from typing_extensions import override

from backends.buffered_process import BufferedProcess
from backends.link import STDERR, STDOUT, Receive
from backends.remote import Lost
from trajectories.errors import SandboxUnavailable

CALL_TIMEOUT_S = 30.0
HEARTBEAT_S = 15.0
"""Between pings on a stream; one that is not answered in half this time is cut."""


class NomadApi:
    """A connection pool to one Nomad agent.

    Args:
        address: ``http://host:port`` or ``https://host:port``.
        token: Secret of an ACL token that may submit jobs and exec.
        scope: ``namespace`` and ``region``, where they are not the default ones.
    """

    def __init__(self, address: str, token: str | None, scope: Mapping[str, str]):
        self.address = address
        self._scope = scope
        self._headers = {"X-Nomad-Token": token} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> tuple[Any, int]:
        """Make a call; return its answer and its index, which a later call can wait to change.

        The answer is None where there is no such job.

        Raises:
            SandboxUnavailable: The agent can't be reached, or refuses.
        """
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
        try:
            async with self._connected().request(
                method,
                f"{self.address}/v1{path}",
                json=body,
                params={**self._scope, **query},
                headers=self._headers,
                timeout=timeout,
            ) as answer:
                text = await answer.text()
                if answer.status == 404:
                    return None, 0
                if answer.status >= 400:
                    ours = answer.status in (400, 401, 403)
                    raise SandboxUnavailable(
                        f"Nomad at {self.address} refuses {method} {path}: {answer.status} {text.strip()}",
                        retryable=not ours,
                    )
                return json.loads(text) if text else None, int(answer.headers.get("X-Nomad-Index", 0))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxUnavailable(
                f"Nomad at {self.address} can't be reached: {error or 'no answer'}"
            ) from error

    async def exec(
        self, allocation: str, task: str, command: Sequence[str], receive: Receive, lost: Lost
    ) -> "NomadProcess":
        """Start a process in a task of an allocation.

        Raises:
            SandboxUnavailable: The agent can't be reached, or refuses.
        """
        query = {**self._scope, "task": task, "tty": "false", "command": json.dumps(list(command))}
        try:
            socket = await self._connected().ws_connect(
                f"{self.address}/v1/client/allocation/{allocation}/exec",
                params=query,
                headers=self._headers,
                heartbeat=HEARTBEAT_S,
                max_msg_size=0,
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxUnavailable(f"no process can be started in {allocation}: {error}") from error
        return NomadProcess(socket, receive, lost)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session


class NomadProcess(BufferedProcess):
    """A process in a container, over an exec stream."""

    message_bytes = 64 * 1024

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, receive: Receive, lost: Lost):
        self._socket = socket
        super().__init__(receive, lost)

    @override
    async def listen(self) -> str | None:
        try:
            async for message in self._socket:
                frame = json.loads(message.data) if message.type == aiohttp.WSMsgType.TEXT else {}
                for channel, name in ((STDOUT, "stdout"), (STDERR, "stderr")):
                    self.received(channel, base64.b64decode((frame.get(name) or {}).get("data") or ""))
                if frame.get("exited"):
                    return None
            return f"the stream to the container was cut ({self._socket.close_code})"
        finally:
            self._closing = asyncio.create_task(self._socket.close())

    @override
    async def say(self, data: bytes) -> bool:
        return await self._send({"stdin": {"data": base64.b64encode(data).decode()}})

    @override
    async def say_end(self) -> None:
        await self._send({"stdin": {"close": True}})

    async def _send(self, message: Mapping[str, Any]) -> bool:
        try:
            await self._socket.send_str(json.dumps(message))
        except (aiohttp.ClientError, ConnectionError, RuntimeError):
            return False  # `listen` finds out why
        return True
