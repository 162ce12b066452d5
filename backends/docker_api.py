"""The few calls of the Docker Engine API that sandboxes need, over its socket.

Ordinary calls go through aiohttp. An attached stream is a connection that stops being HTTP after its
headers; it gets a protocol of its own, so that a command costs one write and its output is split into
frames as it arrives.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
from typing_extensions import override

from backends.link import STDERR, STDOUT, Link, PushedLink, Receive
from trajectories.errors import ConfigError, SandboxDied, SandboxUnavailable

DEFAULT_HOST = "unix:///var/run/docker.sock"
DEFAULT_PORT = 2375
CONNECT_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 120.0
FRAME_HEADER_BYTES = 8


class EngineError(Exception):
    """The engine refused a call."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class DockerApi:
    """A connection pool to one engine.

    Args:
        host: ``unix:///path`` or ``tcp://host:port``.
    """

    def __init__(self, host: str = DEFAULT_HOST):
        self._address = urlsplit(host)
        if self._address.scheme not in ("unix", "tcp"):
            raise ConfigError(f"host: {host!r} is neither unix:///path nor tcp://host:port")
        self.host = host
        self.is_local = self._address.scheme == "unix"
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        **query: object,
    ) -> Any:
        """Make a call and return its decoded answer, None where it has none.

        Raises:
            EngineError: The engine answered with an error status.
            SandboxUnavailable: The engine can't be reached.
        """
        async for part in self._answers(method, path, timeout_s, query, json=body):
            return part
        return None

    async def send(self, path: str, data: Any, **query: object) -> AsyncIterator[dict[str, Any]]:
        """Post a stream (a build context, a root file system) and yield the engine's progress messages.

        Raises:
            EngineError: The engine refused, or reports an error on the way.
            SandboxUnavailable: The engine can't be reached.
        """
        headers = {"Content-Type": "application/x-tar"}
        async for part in self._answers("POST", path, None, query, data=data, headers=headers):
            if "error" in part:
                raise EngineError(500, part["error"])
            yield part

    async def attach(self, path: str, receive: Receive, body: Mapping[str, Any] | None = None) -> Link:
        """Make a call whose connection becomes a stream to a process.

        Raises:
            EngineError: The engine refused.
            SandboxUnavailable: The engine can't be reached.
        """
        content = json.dumps(body or {}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if self.is_local:
                    _, stream = await loop.create_unix_connection(
                        lambda: HijackedStream(receive), self._address.path
                    )
                else:
                    _, stream = await loop.create_connection(
                        lambda: HijackedStream(receive),
                        self._address.hostname or "localhost",
                        self._address.port or DEFAULT_PORT,
                    )
                try:
                    stream.write(head.encode() + content)
                    await stream.upgraded
                except BaseException:
                    stream.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise self._unreachable(error) from error
        return stream

    async def close(self) -> None:
        """Close the connections; idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answers(
        self, method: str, path: str, timeout_s: float | None, query: Mapping[str, object], **options: Any
    ) -> AsyncIterator[Any]:
        url = self._base() + path
        if query:
            url += "?" + urlencode({key: _plain(value) for key, value in query.items()})
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            async with self._connected().request(method, url, timeout=timeout, **options) as answer:
                if answer.status >= 400:
                    text = await answer.text()
                    raise EngineError(answer.status, _message(text))
                async for line in answer.content:
                    if line.strip():
                        yield json.loads(line)
        except (aiohttp.ClientError, json.JSONDecodeError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            path = self._address.path
            connector = aiohttp.UnixConnector(path) if self.is_local else aiohttp.TCPConnector()
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=2**20)
        return self._session

    def _base(self) -> str:
        return "http://docker" if self.is_local else f"http://{self._address.netloc}"

    def _unreachable(self, error: BaseException) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"the Docker engine at {self.host} can't be reached: {str(error) or 'no answer'}"
        )


class HijackedStream(PushedLink, asyncio.Protocol):
    """An attached process: HTTP headers first, then raw input one way and framed output the other."""

    def __init__(self, receive: Receive):
        super().__init__()
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receive: Receive | None = receive
        self._transport: asyncio.Transport | None = None
        self._pending = b""

    @override
    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @override
    def close(self) -> None:
        self._receive = None
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        if not self.upgraded.done():
            self.upgraded.set_exception(OSError("the engine closed the connection"))
        elif self._receive is not None:
            self._receive(STDOUT, b"")

    @override
    def data_received(self, data: bytes) -> None:
        data = self._pending + data if self._pending else data
        if not self.upgraded.done():
            data = self._take_headers(data)
        position = 0
        while self._receive is not None and len(data) - position >= FRAME_HEADER_BYTES:
            end = position + FRAME_HEADER_BYTES + int.from_bytes(data[position + 4 : position + 8], "big")
            if end > len(data):
                break
            channel = STDERR if data[position] == STDERR else STDOUT
            self._receive(channel, data[position + FRAME_HEADER_BYTES : end])
            position = end
        self._pending = data[position:]

    def _take_headers(self, data: bytes) -> bytes:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            return data
        status = int(head.split(b" ", 2)[1])
        if status in (101, 200):
            self.upgraded.set_result(None)
            return rest
        self.upgraded.set_exception(EngineError(status, _message(rest.decode(errors="replace"))))
        self.close()
        return b""


async def remove_container(api: DockerApi, container: str) -> None:
    """Kill and remove a container, and wait until it is gone; not an error if it already is."""
    while True:
        try:
            await api.call("DELETE", f"/containers/{container}", force=True, v=True)
        except EngineError as error:
            if error.status == 404:
                return
            if error.status != 409:  # 409: its removal is under way
                raise SandboxDied(f"container {container[:12]} could not be removed: {error}") from error
            await asyncio.sleep(0.02)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _message(text: str) -> str:
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text.strip()
