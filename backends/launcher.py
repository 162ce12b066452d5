"""The harness's end of the process that starts its local sandboxes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from backends.bubblewrap import Job
from backends.finish import undo
from backends.launch import STARTED, receive
from trajectories.errors import SandboxUnavailable

PROGRAM = Path(__file__).with_name("launch.py")
ANSWER_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 4096


class FirstProcess:
    """The first process of a namespace that ends with it. Owns its descriptor."""

    def __init__(self, fd: int):
        self._fd = fd
        self._ending = asyncio.Lock()

    def child(self) -> int:
        """Return the number of its only child.

        Raises:
            OSError: It has ended.
            ValueError: It has none, or is just ending.
        """
        described = Path(f"/proc/self/fdinfo/{self._fd}").read_text()
        number = described.partition("\nPid:")[2].split()[0]
        return int(Path(f"/proc/{number}/task/{number}/children").read_text())

    async def end(self) -> None:
        """Kill it and wait, without blocking the loop, until the whole namespace is gone; idempotent.

        Raises:
            TimeoutError: Something can't be killed.
        """
        async with self._ending:
            if self._fd < 0:
                return
            with suppress(ProcessLookupError):  # it may have ended
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            async with asyncio.timeout(END_TIMEOUT_S):
                await _readable(self._fd)
            os.close(self._fd)
            self._fd = -1


class Launcher:
    """Starts sandboxes, one after the other, in a process of its own.

    Raises:
        SandboxUnavailable: That can't be started.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._closed = False
        try:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise SandboxUnavailable(f"no sandbox can be started: {error}") from error
        self._socket.setblocking(False)
        try:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-IS", str(PROGRAM), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self._socket.close()
            raise SandboxUnavailable(
                f"the process that starts sandboxes can't be started: {error}"
            ) from error
        finally:
            theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it can still start sandboxes."""
        return not self._closed and self._process.poll() is None

    async def start(self, job: Job, stdin: int, stdout: int, stderr: int) -> FirstProcess:
        """Fork a sandbox's first process, on three descriptors that stay the caller's; it is not up yet.

        Raises:
            SandboxUnavailable: It could not be started.
        """
        async with self._turn:
            if self._closed:
                raise SandboxUnavailable("what was to start the sandbox was closed")
            starting = asyncio.create_task(self._start(job, [stdin, stdout, stderr]))
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                await undo(_end(starting))
                raise
            finally:
                if self._closed:
                    self._socket.close()

    def close(self) -> None:
        """Kill the process, and with it all that it started; a start under way fails."""
        if self._closed:
            return
        self._closed = True
        self._socket.shutdown(socket.SHUT_RDWR)
        if not self._turn.locked():
            self._socket.close()
        with suppress(PermissionError):  # it was started with rights that this process has given up
            self._process.kill()
        self._process.wait()

    async def _start(self, job: Job, streams: list[int]) -> FirstProcess:
        try:
            socket.send_fds(self._socket, [json.dumps(asdict(job)).encode()], streams)
            with suppress(TimeoutError):  # the loop itself may have been busy for so long
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await _readable(self._socket.fileno())
            answer, fds = receive(self._socket, MAX_ANSWER_BYTES, 1)
        except asyncio.CancelledError:
            self.close()  # or the answer would be taken for that of another start
            raise
        except BlockingIOError:
            self.close()
            raise SandboxUnavailable(f"no sandbox was started within {ANSWER_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise SandboxUnavailable(f"the sandbox could not be started: {error}") from error
        if answer == STARTED and fds:
            return FirstProcess(fds[0])
        reason = "no descriptor is left" if answer == STARTED else os.fsdecode(answer) or "the launcher ended"
        raise SandboxUnavailable(f"the sandbox did not start: {reason}")


async def _end(starting: asyncio.Task[FirstProcess]) -> None:
    with suppress(SandboxUnavailable):
        await (await starting).end()


async def _readable(fd: int) -> None:
    """Wait until a descriptor can be read from."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
