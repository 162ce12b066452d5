"""HTTP to model servers: bytes out, bytes in, with deadlines, retries and failover.

A call is tried again where another attempt may succeed: the server was busy (429), broke down (5xx), hung up
or is gone. Any other refusal is final. Cancelling a call closes its connection, which is how servers learn to
stop computing it.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence

import aiohttp

from inference.backoff import backoff_s
from inference.replicas import Replica, Replicas
from trajectories.errors import ConfigError, ModelError

CONNECT_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 10.0
LONGEST_RETRY_AFTER_S = 60.0

_TOO_LONG = re.compile(
    r"context_length_exceeded|(maximum|max) (context|model) length|context (length|window|size)"
    r"|prompt is too long|longer than the model|max_model_len",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp and others word it; no status code of its own exists."""


class Refused(Exception):
    """The server understood the request and said no; asking again would not help."""

    def __init__(self, status: int, text: str):
        super().__init__(f"HTTP {status}: {text[:500]}")
        self.status = status
        self.text = text

    @property
    def is_context_overflow(self) -> bool:
        """Whether the reason was that the conversation is too long for the model."""
        return self.status in (400, 413, 422) and bool(_TOO_LONG.search(self.text))


class _Unavailable(Exception):
    """This attempt failed in a way that another may not."""

    def __init__(self, message: str, retry_after_s: float = 0.0):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Transport:
    """A connection pool to equal servers.

    Args:
        urls: Their base URLs.
        headers: Sent with every request, such as the authorization.
        timeout_s: Deadline of a call, all attempts and the waits between them included.
        attempts: Most tries of one call.
        longest_wait_s: Bound of the jittered, doubling wait before the next try.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
        attempts: int = 5,
        longest_wait_s: float = 20.0,
    ):
        self.replicas = Replicas(urls)
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._longest_wait_s = longest_wait_s
        self._pool: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the pool; nothing is sent yet."""
        if self._pool is None:
            self._pool = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            )

    async def close(self) -> None:
        """Close every connection; idempotent."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def post(self, path: str, body: bytes, *, session_id: str) -> bytes:
        """Send ``body`` to the session's server, or to another if that one is down; return the answer.

        Raises:
            Refused: The answer was 4xx, 429 excepted.
            ModelError: No server answered within the attempts and the deadline.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                for attempt in range(1, self._attempts):
                    try:
                        return await self._attempt(path, body, session_id)
                    except _Unavailable as error:
                        await asyncio.sleep(
                            max(error.retry_after_s, backoff_s(attempt, self._longest_wait_s))
                        )
                return await self._attempt(path, body, session_id)
        except TimeoutError:
            raise ModelError(f"no answer from {path} within {self._timeout_s:g} s") from None
        except _Unavailable as error:
            raise ModelError(f"{error}; tried {self._attempts} times") from error

    async def get_every(self, path: str) -> list[tuple[str, bytes | Refused]]:
        """Ask every server once, for a check at the start; return its URL and answer.

        Raises:
            ConfigError: A server can't be reached.
        """
        return [(replica.url, await self._get(replica, path)) for replica in self.replicas.all]

    async def _get(self, replica: Replica, path: str) -> bytes | Refused:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S), self._opened().get(replica.url + path) as response:
                answer = await response.read()
                if response.status >= 500:
                    raise ConfigError(f"base_url: {replica.url}{path} answered HTTP {response.status}")
                return (
                    answer
                    if response.status < 400
                    else Refused(response.status, answer.decode(errors="replace"))
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ConfigError(
                f"base_url: no server at {replica.url} ({reason}); start it or correct the URL"
            ) from error

    async def _attempt(self, path: str, body: bytes, session_id: str) -> bytes:
        with self.replicas.call(session_id) as replica:
            try:
                async with self._opened().post(replica.url + path, data=body) as response:
                    answer = await response.read()
            except (aiohttp.ClientError, OSError) as error:
                self.replicas.failed(replica)
                reason = str(error) or type(error).__name__
                raise _Unavailable(f"{replica.url}{path} hung up or can't be reached: {reason}") from error
            if response.status < 400:
                self.replicas.succeeded(replica)
                return answer
            text = answer.decode(errors="replace")
            if response.status != 429 and response.status < 500:
                raise Refused(response.status, text)
            if response.status != 429:
                self.replicas.failed(replica)
            said = f"{replica.url}{path} answered HTTP {response.status}: {text[:300]}"
            raise _Unavailable(said, _retry_after_s(response.headers.get("Retry-After")))

    def _opened(self) -> aiohttp.ClientSession:
        if self._pool is None:
            raise RuntimeError("the client is not started: await start() first")
        return self._pool


def _retry_after_s(header: str | None) -> float:
    """Read the delay of a ``Retry-After`` header; its date form counts as none."""
    try:
        return min(max(float(header or 0), 0.0), LONGEST_RETRY_AFTER_S)
    except ValueError:
        return 0.0
