"""Sandboxes on a machine behind a network, where processes can be started, each on streams of its own.

The warden's standard input is the sandbox's lease: when it ends, for whatever reason, the warden exits and
the kernel there ends the rest. A shell's streams are named pipes inside the sandbox, relayed by a process
that joins as the sandbox's own user. What carried a process and was lost says so before the process seems to
end: a cut network kills the sandbox on this side and is never taken for a command that was killed.
"""

import secrets
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from backends.finish import undo
from backends.link import BOOTSTRAP, STDERR, STDOUT, Link, Receive, Sandbox
from backends.resources import Resources
from backends.warden import Warden
from trajectories.errors import SandboxDied, SandboxUnavailable

COMMAND = ("env", "LC_ALL=C", "bash", "--noprofile", "--norc", "-c", BOOTSTRAP, "lachesis")
"""What a host runs for every process; the program follows on its standard input."""

RELAY = """
inner={pid}
for ((level = 0; level < {depth}; level++)); do read -r inner _ <"/proc/$inner/task/$inner/children"; done
exec {join} bash --noprofile --norc -c '
    name=$2 mark=$3
    cd "$1" && exec 3<&0 5<"$name.in" 6<"$name.out" 7<"$name.err" || exit
    set -- $(stat -L -c %d . /dev/fd/5 /dev/fd/6 /dev/fd/7)
    [[ -p /dev/fd/5 && -p /dev/fd/6 && -p /dev/fd/7 && "$2 $3 $4" == "$1 $1 $1" ]] || exit
    exec 4<>/dev/fd/5 5<&-
    rm -f "$name.in" "$name.out" "$name.err"
    printf %s "$mark"; printf %s "$mark" >&2
    cat <&3 >&4 2>/dev/null 6<&- 7<&- & input=$!
    cat <&6 2>/dev/null 3<&- 4<&- 7<&- & output=$!
    cat <&7 >&2 3<&- 4<&- 6<&- & errors=$!
    exec 0<&- 3<&- 4<&- 6<&- 7<&-
    wait -n "$input" "$output" # either side may be the first to go
    if kill "$input"; then wait "$errors"; else kill "$output" "$errors"; fi 2>/dev/null
' relay "/proc/$inner/root/run/lachesis" {name} {mark}
"""
"""Carries a shell's streams between its named pipes and the streams of a process on the host.

The agent may have put a link in a pipe's place, to a file of the host. So nothing is read or written before
what was opened is known to be a pipe in the sandbox, and no name is followed twice.
"""

Lost = Callable[[str], None]
"""Called with the reason when what carried a process is gone, before the process seems to end."""


class Process(Link):
    """A process on a host."""

    in_order = False

    @abstractmethod
    async def end(self) -> None:
        """End its standard input and wait, in bounded time, until it is gone there; idempotent.

        Raises:
            SandboxDied: Its end could not be confirmed.
        """


@dataclass(frozen=True, slots=True)
class Launch:
    """How a sandbox is started on a host."""

    command: list[str]
    """Becomes a sandbox whose first process is the warden."""
    depth: int
    """How many generations below the command's own process the warden is."""
    join: str
    """Prefix, in bash, of a command that shall run as the sandbox's user."""
    workspace: str = "/workspace"
    temporary: tuple[str, ...] = ("/tmp", "/home/agent", "/dev/shm")


class Host(ABC):
    """A machine, or a container on one, that starts processes for us."""

    address: str
    """Names it in messages."""
    sandboxes: int = 0
    """Being started there, or running."""

    @abstractmethod
    async def launch(self, resources: Resources) -> Launch:
        """Tell how a sandbox with these resources is started there.

        Raises:
            SandboxUnavailable: The host can't be reached, or lacks what sandboxes need.
            ConfigError: Such resources can't be bounded there.
        """

    @abstractmethod
    async def run(self, program: str, receive: Receive, lost: Lost) -> Process:
        """Start `COMMAND` and send it ``program``.

        Raises:
            SandboxUnavailable: The host can't be reached, or refuses.
        """


class RemoteSandbox(Sandbox):
    """One sandbox on a host."""

    def __init__(self, host: Host, warden: Warden):
        self.pid = 0
        """Of the launch command, on the host."""
        self._host = host
        self._launch: Launch | None = None
        self._warden = warden
        self._process: Process | None = None
        self._counted = True
        host.sandboxes += 1

    @classmethod
    async def start(
        cls, host: Host, warden: Warden, resources: Resources, timeout_s: float
    ) -> "RemoteSandbox":
        """Start a sandbox and wait until its warden is up; it counts as the host's from the call on.

        Raises:
            SandboxUnavailable: The host can't be reached, or the sandbox did not start; the message holds
                what was said there.
        """
        sandbox = cls(host, warden)
        warden.side.expect("host", sandbox._hear)
        try:
            launch = sandbox._launch = await host.launch(resources)
            sandbox.workspace, sandbox.temporary = launch.workspace, launch.temporary
            program = f"printf '\\rhost %d\\n' $$; exec {shlex.join(launch.command)}"
            sandbox._process = await host.run(program, warden.receive, warden.mourn)
            await warden.attach(sandbox._process, timeout_s)
        except BaseException:
            await undo(sandbox.destroy())
            raise
        return sandbox

    @override
    async def open_shell(self, name: str, receive: Receive) -> Link:
        if await self._warden.ask("open", name, records=(BOOTSTRAP,)) != "opened":
            raise SandboxDied("the sandbox has no room for another shell")
        assert self._launch is not None, "it was started"
        mark = secrets.token_urlsafe(9)
        launch = self._launch
        relay = RELAY.format(pid=self.pid, depth=launch.depth, join=launch.join, name=name, mark=mark)
        try:
            return await self._host.run(relay, After(mark.encode(), receive).receive, self._warden.mourn)
        except SandboxUnavailable as error:
            raise SandboxDied(f"no shell could be opened in the sandbox: {error}") from error

    @override
    async def destroy(self) -> None:
        try:
            if self._process is not None:
                await self._process.end()
        finally:
            self._host.sandboxes -= self._counted
            self._counted = False

    def _hear(self, words: list[str]) -> None:
        self.pid = self.pid or int(words[0])


class After:
    """Passes on what comes after a mark: what a host's own start-up files print is no output of ours."""

    def __init__(self, mark: bytes, receive: Receive):
        self._mark = mark
        self._receive = receive
        self._before = {STDOUT: b"", STDERR: b""}

    def receive(self, channel: int, data: bytes) -> None:
        """Take what the host sends."""
        if data and channel in self._before:
            before, found, data = (self._before[channel] + data).partition(self._mark)
            if not found:
                self._before[channel] = before
                return
            del self._before[channel]
            if not data:
                return
        self._receive(channel, data)
