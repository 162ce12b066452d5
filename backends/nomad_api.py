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

from backends.link import STDERR, STDOUT, Receive
from backends.remote import Lost, Process
from trajectories.errors import SandboxDied, SandboxUnavailable

CALL_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0
HEARTBEAT_S = 15.0
"""Between pings on a stream; one that is not answered in half this time is cut."""
MESSAGE_BYTES = 64 * 1024
MAX_BUFFERED_BYTES = 256 * 1024


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


class NomadProcess(Process):
    """A process in a container, over an exec stream."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, receive: Receive, lost: Lost):
        self._socket = socket
        self._receive: Receive | None = receive
        self._lost = lost
        self._unsent = bytearray()
        self._eof = False
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._over = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._send())]

    @override
    def write(self, data: bytes) -> None:
        self._unsent += data
        self._wake.set()
        if len(self._unsent) > MAX_BUFFERED_BYTES and not self._over.is_set():
            self._drained.clear()

    @override
    async def drain(self) -> None:
        await self._drained.wait()

    @override
    def poll(self) -> None:
        """Do nothing: what is here has been received."""

    @override
    def close(self) -> None:
        self._receive = None
        for task in self._tasks:
            task.cancel()
        self._drained.set()

    @override
    async def end(self) -> None:
        self._receive = None
        self._eof = True
        self._wake.set()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._over.wait()
        except TimeoutError:
            raise SandboxDied("Nomad did not confirm the end of a sandbox") from None
        finally:
            self.close()

    async def _read(self) -> None:
        exited = False
        try:
            async for message in self._socket:
                frame = json.loads(message.data) if message.type == aiohttp.WSMsgType.TEXT else {}
                self._pass_on(frame)
                if frame.get("exited"):
                    exited = True
                    break
            if not exited and self._receive is not None:
                self._lost(f"the stream to the container was cut ({self._socket.close_code})")
        finally:
            self._over.set()
            self._drained.set()
            self._wake.set()
            receive, self._receive = self._receive, None
            if receive is not None:
                receive(STDOUT, b"")
            await self._socket.close()

    def _pass_on(self, frame: Mapping[str, Any]) -> None:
        for channel, name in ((STDOUT, "stdout"), (STDERR, "stderr")):
            if self._receive is not None and (data := (frame.get(name) or {}).get("data")):
                self._receive(channel, base64.b64decode(data))

    async def _send(self) -> None:
        while not self._over.is_set():
            await self._wake.wait()
            self._wake.clear()
            while self._unsent and not self._over.is_set():
                data = bytes(self._unsent[:MESSAGE_BYTES])
                del self._unsent[: len(data)]
                await self._say({"stdin": {"data": base64.b64encode(data).decode()}})
                if len(self._unsent) <= MAX_BUFFERED_BYTES:
                    self._drained.set()
            if self._eof:
                await self._say({"stdin": {"close": True}})
                return

    async def _say(self, message: Mapping[str, Any]) -> None:
        try:
            await self._socket.send_str(json.dumps(message))
        except (aiohttp.ClientError, ConnectionError, RuntimeError):
            self._unsent.clear()  # the reader finds out why
