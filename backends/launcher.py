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
from trajectories.errors import SandboxUnavailable

PROGRAM = Path(__file__).with_name("launch.py")
ANSWER_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0


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
    """Starts sandboxes, one after the other, in a process that `close` ends, and all of them with it."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-IS", str(PROGRAM), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether it can still start sandboxes."""
        return self._process.poll() is None

    async def start(self, job: Job, stdin: int, stdout: int, stderr: int) -> FirstProcess:
        """Start a sandbox on three descriptors, which stay the caller's.

        Raises:
            SandboxUnavailable: It could not be started.
        """
        async with self._turn:
            starting = asyncio.create_task(self._start(job, [stdin, stdout, stderr]))
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                await undo(_end(starting))
                raise

    async def _start(self, job: Job, streams: list[int]) -> FirstProcess:
        try:
            socket.send_fds(self._socket, [json.dumps(asdict(job)).encode()], streams)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await _readable(self._socket.fileno())
            answer, fds, flags, _ = socket.recv_fds(self._socket, 4096, 1, socket.MSG_CMSG_CLOEXEC)
            if not answer:
                raise EOFError("it ended")
        except (OSError, EOFError) as error:  # a timeout is an OSError
            self._process.kill()
            raise SandboxUnavailable(f"the process that starts sandboxes does not answer: {error}") from error
        if not fds:
            reason = "no descriptor is left" if flags & socket.MSG_CTRUNC else answer.decode()
            raise SandboxUnavailable(f"the sandbox did not start: {reason}")
        return FirstProcess(fds[0])

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


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
