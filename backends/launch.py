"""Program of the process that starts a harness's local sandboxes; see `launcher`. It imports nothing of ours.

A start asks the kernel for some forty things. Each of them asked for by a program of its own, as
``launch.sh`` has to on other hosts, costs a millisecond; asked for from here, microseconds. This is a process
of its own because it forks: it has one thread and little memory.

Standard input is a socket that keeps messages apart. A message is a `bubblewrap.Job` in JSON, with the
sandbox's three standard streams. The answer is a descriptor for the sandbox's first process (pidfd), or the
reason why there is none. Whatever fails after that is told on the sandbox's standard error. The launcher is
the first process of a namespace that ends with it, and holds all its sandboxes; it ends with its harness.
"""

import array
import ctypes
import fcntl
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
PR_SET_PDEATHSIG = 1
MAX_JOB_BYTES = 128 * 1024
STARTED = b"started"
FOLDERS = ("workspace", "upper", "overlay", "tmp", "home", "shm")
FREE_FD = 16
"""Above all descriptors that a sandbox is given."""


def main(harness: int) -> None:
    """Start sandboxes until the harness, a process id, is gone."""
    end_with_parent()
    if os.getppid() != harness:
        return
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # the harness may ignore some, or block them
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    requests = socket.socket(fileno=0)
    try:
        enter_namespaces()
        first = os.fork()
    except OSError as error:
        if requests.recv(1):
            requests.send(str(error).encode())
        return
    if first:
        os.waitpid(first, 0)
    else:
        end_with_parent()
        with suppress(ConnectionError):  # the harness is gone
            serve(requests)


def enter_namespaces() -> None:
    """Get a namespace for the processes that are forked from now on.

    Without privileges that takes a user namespace, in which this process is root.
    """
    user, group = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWPID | (CLONE_NEWUSER if user else 0))
    if user:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"0 {user} 1")
        write("/proc/self/gid_map", f"0 {group} 1")


def serve(requests: socket.socket) -> None:
    """Start a sandbox for every message."""
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
    while True:
        message, streams = receive(requests, MAX_JOB_BYTES, 3)
        if not message:
            return
        job = json.loads(message)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        try:
            if len(streams) != 3:
                raise OSError("too few descriptors are left")
            start(requests, job, streams)
        except ConnectionError:
            raise
        except OSError as error:
            requests.send(str(error).encode())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            call("setns", ours, CLONE_NEWPID)
            for fd in streams:
                os.close(fd)


def reap(*_: object) -> None:
    """Let go of the children that have ended; until then their numbers are theirs."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def start(requests: socket.socket, job: dict[str, Any], streams: list[int]) -> None:
    """Fork the first process of a new namespace, and answer."""
    call("unshare", CLONE_NEWPID)
    first = os.fork()
    if first == 0:
        become(job, streams)
    try:
        fd = os.pidfd_open(first)
        try:
            socket.send_fds(requests, [STARTED], [fd])
        finally:
            os.close(fd)
    except OSError:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
        raise


def become(job: dict[str, Any], streams: list[int]) -> NoReturn:
    """Turn the first process of a namespace into the command; what fails is told on its stderr."""
    try:
        give(dict(enumerate(streams)))
        give(open_files(job))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        write("/proc/self/oom_score_adj", "1000")  # when memory runs out, the kernel takes the sandbox first
        call("unshare", CLONE_NEWNS)
        prepare(job)
        if job["owner"] is not None:
            os.setgroups([])
            os.setresgid(*[job["owner"]] * 3)
            os.setresuid(*[job["owner"]] * 3)
        execute(job["command"])
    except Exception as error:
        os.write(2, os.fsencode(f"{type(error).__name__}: {error}\n"))
    finally:
        os._exit(1)


def execute(command: list[str]) -> NoReturn:
    """Become a program.

    Raises:
        OSError: It can't be run.
    """
    try:
        os.execvpe(command[0], command, {"PATH": os.environ.get("PATH", os.defpath)})
    except OSError as error:
        raise OSError(error.errno, error.strerror, command[0]) from None


def open_files(job: dict[str, Any]) -> dict[int, int]:
    """Return what the command is to find open, by the numbers it knows."""
    opened = dict[int, int]()
    for number, text in job["texts"].items():
        opened[int(number)], end = os.pipe()
        os.write(end, text.encode())
        os.close(end)
    for number, path in job["opened"].items():
        opened[int(number)] = os.open(path, os.O_WRONLY)
    return opened


def give(descriptors: dict[int, int]) -> None:
    """Put descriptors, by the numbers they are to have, in their places."""
    copies = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_FD) for number, fd in descriptors.items()}
    for number, fd in copies.items():
        os.dup2(fd, number)


def prepare(job: dict[str, Any]) -> None:
    """Mount what the command is to find: see `bubblewrap.Job`."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)  # or what the host mounts later would appear in the sandbox
    mount("tmpfs", "/sys", "tmpfs", 0, job["storage"])
    owner = job["owner"] or 0
    for name in FOLDERS:
        os.mkdir(f"/sys/{name}")
        os.chown(f"/sys/{name}", owner, owner)
    for index, path in enumerate(job["passed"]):
        os.mkdir(f"/sys/host{index}")
        mount(path, f"/sys/host{index}", None, MS_BIND | MS_REC)
    if job["below"] is not None:
        os.chdir(job["below"])
        options = "lowerdir=.,upperdir=/sys/upper,workdir=/sys/overlay,metacopy=on"
        mount("overlay", "/sys/workspace", "overlay", 0, options)
        if os.spawnlp(os.P_WAIT, "chown", "chown", "-hR", f"{owner}:{owner}", "/sys/workspace") != 0:
            raise ChildProcessError("the workspace can't be given to the sandbox's user")
        os.chdir("/")
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount something, with the arguments of the system call."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    call("mount", *words[:3], flags, words[3])


def receive(channel: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message with descriptors, or with fewer if no more are left here.

    No program inherits them, unlike those that `socket.recv_fds` of Python 3.11 returns.
    """
    message, ancillary, _, _ = channel.recvmsg(size, socket.CMSG_SPACE(count * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, fds.tolist()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)


def write(path: str, text: str) -> None:
    """Write a text at once, as files of the kernel want it."""
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)


def call(function: str, *arguments: int | bytes | None) -> None:
    """Call the C library.

    Raises:
        OSError: It failed; the message tells what was called.
    """
    if getattr(LIBC, function)(*arguments) != 0:
        error = ctypes.get_errno()
        words = [os.fsdecode(word) for word in arguments if isinstance(word, bytes)]
        raise OSError(error, f"{' '.join([function, *words])}: {os.strerror(error)}")


if __name__ == "__main__":
    main(harness=int(sys.argv[1]))
