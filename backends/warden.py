"""The harness's end of process 1 of a sandbox: requests, and knowing at once that the sandbox died."""

import asyncio
import secrets
from asyncio import Future
from collections.abc import Iterable
from contextlib import suppress

from backends.link import STDERR, Link, program
from backends.side import SideChannel
from trajectories.errors import SandboxDied, SandboxUnavailable

ANSWER_TIMEOUT_S = 10.0
"""A warden that is silent for longer is dead."""


class Warden:
    """Talks to ``warden.sh``. `receive` is the receiver of its link, to be attached once that is open."""

    def __init__(self) -> None:
        self.side = SideChannel()
        self.cause: str | None = None
        """Why the sandbox is dead; None while it lives."""
        self.pid = 1
        """Inside the sandbox, as are the two below."""
        self.uid = -1
        self.folder = ""
        """Of the shells' files."""
        self._fellows = set[Warden]()
        self._link: Link | None = None
        self._watchers: set[Future[None]] = set()
        self._up = asyncio.Event()
        self._diagnostics = b""
        self.side.expect("-", self._rise)

    def receive(self, channel: int, data: bytes) -> None:
        """Take what process 1 sends."""
        if channel == STDERR or not self._up.is_set():
            self._diagnostics = (self._diagnostics + data)[-2000:]
        if channel == STDERR:
            return
        if data:
            self.side.feed(data)
        else:
            self.mourn("the sandbox ended")

    def _rise(self, words: list[str]) -> None:
        self.pid, self.uid, self.folder = int(words[1]), int(words[2]), words[3]
        self.side.forget("-")
        self._up.set()

    async def attach(self, link: Link, timeout_s: float) -> None:
        """Wait until process 1 is up.

        Raises:
            SandboxUnavailable: It isn't within ``timeout_s``, or ended; the message holds what it said.
        """
        self._link = link
        link.write(program("warden.sh"))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        if self.cause is not None or not self._up.is_set():
            said = self._diagnostics.decode(errors="replace").strip()
            raise SandboxUnavailable(f"the sandbox did not start: {said or self.cause or 'it is silent'}")

    def mourn(self, cause: str) -> None:
        """Declare the sandbox dead; everything that waits on it raises `SandboxDied`."""
        if self.cause is not None:
            return
        self.cause = cause
        self._up.set()
        for future in list(self._watchers):
            self._fail(future)
        for fellow in self._fellows:
            fellow.mourn(cause)

    def share_fate(self, other: "Warden") -> None:
        """Have each of the two die with the other."""
        self._fellows.add(other)
        other._fellows.add(self)

    def watch(self, future: Future[None]) -> None:
        """Fail ``future`` with `SandboxDied` if the sandbox dies before `unwatch`."""
        self._watchers.add(future)
        if self.cause is not None:
            self._fail(future)

    def unwatch(self, future: Future[None]) -> None:
        """Leave ``future`` alone from now on."""
        self._watchers.discard(future)

    async def ask(
        self, verb: str, *arguments: object, records: Iterable[str] = (), timeout_s: float = ANSWER_TIMEOUT_S
    ) -> str:
        """Send a request and return the first word of its answer.

        Raises:
            SandboxDied: No answer will come.
        """
        token = secrets.token_urlsafe(9)
        answered: Future[None] = asyncio.get_running_loop().create_future()
        answer: list[str] = []

        def take(words: list[str]) -> None:
            answer.extend(words)
            if not answered.done():
                answered.set_result(None)

        self.side.expect(token, take)
        self.watch(answered)
        try:
            if self._link is not None:
                request = " ".join(map(str, (token, verb, *arguments)))
                self._link.write(b"".join(part.encode() + b"\0" for part in (request, *records)))
            async with asyncio.timeout(timeout_s):
                await answered
        except TimeoutError:
            self.mourn(f"the sandbox did not answer {verb!r} within {timeout_s:g} s")
            raise SandboxDied(self.cause or "") from None
        finally:
            self.side.forget(token)
            self.unwatch(answered)
        return answer[0]

    def _fail(self, future: Future[None]) -> None:
        if not future.done():
            future.set_exception(SandboxDied(self.cause or "the sandbox ended"))
