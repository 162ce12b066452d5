"""One persistent shell of a sandbox, from the harness's side.

A command is over when its exit code has come over the side channel *and* all its output is here: what pipes
hold can be read at once, a relayed stream carries a mark. The nonce reaches the sandbox together with the
command but is read there only after the command ran. A command is sent once: if what became of it can't be
known, that is `SandboxDied`.
"""

import asyncio
import secrets
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from backends.base import OnOutput
from backends.finish import finish
from backends.link import STDERR, STDOUT, Link, Receive, program
from backends.output import Capture
from backends.warden import Warden
from trajectories.errors import SandboxDied

RECOVERY_TIMEOUT_S = 10.0
SWEEP_TIMEOUT_S = 30.0
"""Beside a fork bomb on a host that is busy already, process 1 gets little of the processor."""
IDLE_OUTPUT_BYTES = 64 * 1024
KILLED = 137

Ending = Literal["ended", "exited", "lost", "timed_out", "failed"]


@dataclass(slots=True)
class Run:
    """One command on its way."""

    nonce: str
    mark: bytes
    """What ends each output; empty where the link is in order and needs no mark."""
    captures: dict[int, Capture]
    finished: Future[None]
    on_output: OnOutput | None = None
    ending: Ending | None = None
    exit_code: int | None = None
    orphaned: bool = False
    """Whether the command killed the keeper, so that the shell can't be kept."""
    error: Exception | None = None
    started: float = field(default_factory=monotonic)
    duration_s: float = 0.0
    open_channels: set[int] = field(default_factory=lambda: {STDOUT, STDERR})
    carry: dict[int, bytes] = field(default_factory=lambda: {STDOUT: b"", STDERR: b""})

    def finish(self, ending: Ending) -> None:
        """End the wait, unless something else has."""
        if self.ending is None:
            self.ending = ending
            self.duration_s = monotonic() - self.started
            if not self.finished.done():
                self.finished.set_result(None)

    def take(self, channel: int, data: bytes) -> bytes:
        """Take output up to the mark and return what comes after it."""
        if not self.mark:
            self._add(channel, data)
            return b""
        data = self.carry[channel] + data
        end = data.find(self.mark)
        if end < 0:
            keep = _partial_match(data, self.mark)
            self.carry[channel] = data[len(data) - keep :]
            self._add(channel, data[: len(data) - keep])
            return b""
        self.carry[channel] = b""
        self._add(channel, data[:end])
        self.open_channels.discard(channel)
        return data[end + len(self.mark) :]

    def _add(self, channel: int, data: bytes) -> None:
        if not data:
            return
        try:
            self.captures[channel].add(data)
            if self.on_output is not None:
                self.on_output("stdout" if channel == STDOUT else "stderr", data)
        except (
            Exception
        ) as error:  # the caller's own, or a full disk: it ends the command and is raised there
            self.error, self.on_output = error, None
            self.finish("failed")


class Shell:
    """A persistent shell. Commands queue; one runs at a time."""

    def __init__(self, name: str, warden: Warden, connect: Callable[[Receive], Awaitable[Link]]):
        self.name = name
        self.pids: set[int] = set()
        """Process ids, inside the sandbox, of the shell and its keeper."""
        self._warden = warden
        self._connect = connect
        self._lock = asyncio.Lock()
        self._link: Link | None = None
        self._key = ""
        self._pid = 0
        self._ready = False
        self._greeted = False
        """Whether the shell that is there now knows where its requests begin."""
        self._returning: Future[None] | None = None
        self._run: Run | None = None
        self._ended: str | None = None
        self._idle: dict[int, Capture] = {}

    async def open(self) -> None:
        """Start the shell, or start it anew on fresh streams.

        Raises:
            SandboxDied: The sandbox does not answer.
        """
        if self._ended is not None:
            raise SandboxDied(self._ended)
        self.close()
        self._key = secrets.token_urlsafe(9)
        self._idle = {channel: Capture(IDLE_OUTPUT_BYTES) for channel in (STDOUT, STDERR)}
        self._warden.side.expect(self._key, self._hear)
        self._link = await self._connect(self._receive)
        self._link.write(program("keeper.sh") + program("loop.sh") + self._key.encode())
        if not await self._came_back():
            if self._ended is None:
                self._warden.mourn("a shell of the sandbox did not start")
            raise SandboxDied(self._ended or self._warden.cause or "")

    def close(self) -> None:
        """Free the streams."""
        self._warden.side.forget(self._key)
        self._ready = False
        if self._link is not None:
            self._link.close()
            self._link = None

    def end(self, cause: str) -> None:
        """Free the streams for good; what runs or waits here raises `SandboxDied`."""
        self._ended = cause
        if self._run is not None and not self._run.finished.done():
            self._run.finished.set_exception(SandboxDied(cause))
        self.close()
        self._tell_returning()

    async def run(
        self,
        code: str,
        *,
        timeout_s: float,
        others: Callable[[], set[int]],
        captures: tuple[Capture, Capture],
        stdin: Iterable[bytes] | None = None,
        on_output: OnOutput | None = None,
    ) -> Run:
        """Run a command when the shell is free.

        Args:
            code: Bash source; with ``stdin`` it must read all of it, whatever else fails.
            timeout_s: Limit, in seconds from when the shell is free.
            others: Gives the processes of the sandbox's other shells, which a sweep must spare.
            captures: Where stdout and stderr go.
            stdin: Chunks for the code to read.
            on_output: See `Slot.exec`.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        async with self._lock:
            if self._ended is not None:
                raise SandboxDied(self._ended)
            if not await self._came_back():  # a background job may have killed it since
                await self.open()
            run = self._begin(code, captures, stdin is not None, on_output)
            try:
                await self._wait(run, timeout_s, stdin)
            except asyncio.CancelledError:
                run.finish("timed_out")
                await finish(self._recover(run, others()))
                raise
            else:
                if run.ending != "ended":
                    await finish(self._recover(run, others()))
                elif run.orphaned:
                    self.close()
            finally:
                self._run = None
        if run.error is not None:
            raise run.error
        return run

    async def _wait(self, run: Run, timeout_s: float, stdin: Iterable[bytes] | None) -> None:
        alarm = asyncio.get_running_loop().call_later(timeout_s, run.finish, "timed_out")
        pump = None if stdin is None else asyncio.create_task(self._send(stdin, run))
        try:
            await run.finished
        finally:
            alarm.cancel()
            self._warden.side.forget(run.nonce)
            self._warden.unwatch(run.finished)
            if pump is not None:
                pump.cancel()
                await asyncio.wait({pump})

    def _begin(
        self, code: str, captures: tuple[Capture, Capture], stdin: bool, on_output: OnOutput | None
    ) -> Run:
        assert self._link is not None
        nonce, marks = secrets.token_urlsafe(9), not self._link.in_order
        run = Run(
            nonce=nonce,
            mark=nonce.encode() if marks else b"",
            captures={STDOUT: captures[0], STDERR: captures[1]},
            finished=asyncio.get_running_loop().create_future(),
            on_output=on_output,
        )
        for channel, idle in self._idle.items():
            if idle.total_bytes:
                run.captures[channel].add(idle.data())
                self._idle[channel] = Capture(IDLE_OUTPUT_BYTES)

        def ended(words: list[str]) -> None:
            run.exit_code = int(words[1])
            run.orphaned = words[2] == "orphaned"
            if not marks and self._link is not None:
                self._link.poll()
                run.open_channels.clear()
            self._settle(run)

        self._warden.side.expect(nonce, ended)
        self._warden.watch(run.finished)
        self._run = run
        flags = ("s" if stdin else "-") + ("m" if marks else "-")
        text = in_ascii(code or ":")
        self._write(f"{len(text):010}{flags}{text}{'' if stdin else nonce}".encode())
        return run

    async def _send(self, stdin: Iterable[bytes], run: Run) -> None:
        for chunk in stdin:
            self._write(chunk)
            if self._link is not None:
                await self._link.drain()
        self._write(run.nonce.encode())

    async def _recover(self, run: Run, others: set[int]) -> None:
        """Bring the shell back after a command that did not end by itself; collect what it printed."""
        if run.ending in ("timed_out", "failed"):
            await self._sweep(run, others)
        elif run.ending == "lost":
            run.exit_code = KILLED
        if run.ending == "lost" or not await self._came_back() or not await self._collect(run):
            await self.open()

    async def _sweep(self, run: Run, others: set[int]) -> None:
        run.exit_code = None
        self._ready = False
        elapsed_ticks = int((monotonic() - run.started) * 100) + 1
        spared = others | self.pids - {self._pid}
        request = (self.name, self._pid, elapsed_ticks, *spared)
        await self._warden.ask("sweep", *request, timeout_s=SWEEP_TIMEOUT_S)

    async def _came_back(self) -> bool:
        """Wait until the keeper has started a shell, and greet it; False if the keeper is gone.

        A greeting tells a new shell where its requests begin; what comes before was meant for an older one.
        """
        if self._link is None:
            return False
        if not self._ready:
            self._returning = asyncio.get_running_loop().create_future()
            self._warden.watch(self._returning)
            try:
                async with asyncio.timeout(RECOVERY_TIMEOUT_S):
                    await self._returning
            except TimeoutError:
                return False
            finally:
                self._warden.unwatch(self._returning)
        if self._ready and not self._greeted:
            self._write(f"\0{self._key}.{self._pid}\0".encode())
            self._greeted = True
        return self._ready

    async def _collect(self, run: Run) -> bool:
        """Run nothing in the new shell: all output before its end is the old command's."""
        sync = self._begin(":", (run.captures[STDOUT], run.captures[STDERR]), False, run.on_output)
        sync.carry = run.carry
        await self._wait(sync, RECOVERY_TIMEOUT_S, None)
        return sync.ending == "ended"

    def _hear(self, words: list[str]) -> None:
        """Take what the keeper or a new shell says about itself."""
        if words[0] == "ready":
            self._pid = int(words[1])
            self.pids = {self._pid, int(words[2])}
            self._ready, self._greeted = True, False
            self._tell_returning()
            return
        self._ready = False
        if self._run is not None and self._run.ending is None:
            self._run.exit_code = int(words[1])
            self._run.finish("exited")

    def _receive(self, channel: int, data: bytes) -> None:
        run = self._run
        if not data:
            self.close()
            self._tell_returning()
            if run is not None:
                run.finish("lost")
            return
        if run is not None and channel in run.open_channels:
            data = run.take(channel, data)
            self._settle(run)
        if data:
            self._idle[channel].add(data)

    def _tell_returning(self) -> None:
        if self._returning is not None and not self._returning.done():
            self._returning.set_result(None)

    def _settle(self, run: Run) -> None:
        if run.exit_code is not None and not run.open_channels:
            run.finish("ended")

    def _write(self, data: bytes) -> None:
        if self._link is not None:
            self._link.write(data)


def in_ascii(code: str) -> str:
    """Write code so that it has as many characters as bytes, in whatever locale the shell is by now."""
    if code.isascii():
        return code
    escaped = code.replace("\\", "\\\\").replace("'", "\\'").encode(errors="replace")
    return "eval $'" + "".join(chr(byte) if byte < 128 else f"\\x{byte:02x}" for byte in escaped) + "'"


def _partial_match(data: bytes, mark: bytes) -> int:
    """Length of the longest end of ``data`` that may be the beginning of ``mark``."""
    return next((n for n in range(min(len(mark) - 1, len(data)), 0, -1) if data.endswith(mark[:n])), 0)
