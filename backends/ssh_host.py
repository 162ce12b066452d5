"""A host behind an SSH server, and the connections to it.

Servers allow few sessions on one connection (OpenSSH: 10), and a sandbox takes three. So processes share a
connection as long as it has room, and the next one is opened when it is full. Each connection holds a guard
on the host that ends it when nothing was heard from here for a while: a network that was cut without a word
must not leave sandboxes behind.
"""

import asyncio
import shlex
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from backends.bubblewrap import HostFacts, SandboxLimits
from backends.finish import finish
from backends.host_facts import bubblewrap_launch, look
from backends.link import Receive, record
from backends.remote import COMMAND, Host, Launch, Lost
from backends.resources import Resources
from backends.ssh_process import SshProcess
from trajectories.errors import ConfigError, SandboxUnavailable

if TYPE_CHECKING:
    import asyncssh

REST_S = 30.0
"""For so long after a host could not be reached, others are asked first."""

GUARD = 'while read -r -t {lease_s} _; do :; done; kill "$PPID"'
"""Ends the server's process for its connection once nothing comes from here any more."""


@dataclass(frozen=True, slots=True)
class SshLimits(SandboxLimits):
    """How hosts are reached, and what one sandbox may use there."""

    host: str = ""
    """``[USER@]NAME[:PORT]``; several equal hosts, separated by commas."""
    client_keys: tuple[str, ...] = ()
    """Files with private keys; the user's own and the agent's if empty."""
    known_hosts: str | None = None
    """File with the hosts' keys; the user's own if unset."""
    check_host_key: bool = True
    """False trusts whoever answers, and everyone in between."""
    max_sessions: int = 10
    """On one connection; the server's ``MaxSessions``."""
    connect_timeout_s: float = 15.0
    lease_s: float = 60.0
    """A host ends the sandboxes of a harness that it has not heard of for this long."""

    def __post_init__(self) -> None:
        if not all(part.strip() for part in self.host.split(",")):
            raise ConfigError("host: name the SSH host, as [USER@]NAME[:PORT]")
        if self.max_sessions < 2:
            raise ConfigError("max_sessions: a connection needs at least 2, one of them for its guard")


class _Connection:
    """One connection with its guard."""

    def __init__(self, transport: "asyncssh.SSHClientConnection", limit: int):
        self.transport = transport
        self.sessions = 0
        self.limit = limit
        self.heartbeat: asyncio.Task[None] | None = None

    async def open(self, program: str, receive: Receive, lost: Lost) -> SshProcess:
        """Start a process; the caller has counted it in ``sessions``."""
        process = SshProcess(receive, lost, self._one_less)
        try:
            command = "exec " + shlex.join(COMMAND)  # so that the guard's parent is the server's process
            session: Any = process  # has the methods of one, without importing asyncssh for a base class
            await finish(self.transport.create_session(lambda: session, command, encoding=None))
        except BaseException:
            process.abandon()
            raise
        process.write(record(program))
        return process

    async def guard(self, lease_s: float) -> None:
        self.sessions += 1
        program = GUARD.format(lease_s=lease_s)
        try:
            process = await self.open(program, lambda channel, data: None, lambda reason: None)
        except BaseException:
            self.transport.abort()
            raise

        async def beat() -> None:
            while True:
                process.write(b"\n")
                await asyncio.sleep(lease_s / 4)

        self.heartbeat = asyncio.create_task(beat())

    def close(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.cancel()
        self.transport.abort()

    def _one_less(self) -> None:
        self.sessions -= 1


class SshHost(Host):
    """One host."""

    def __init__(self, address: str, limits: SshLimits):
        self.address = address
        self._limits = limits
        self._connections: list[_Connection] = []
        self._connecting = asyncio.Lock()
        self._failure: SandboxUnavailable | None = None
        self._rests_until = 0.0
        self._facts: HostFacts | None = None

    @property
    def rests(self) -> bool:
        """Whether it could not be reached a moment ago."""
        return monotonic() < self._rests_until

    @override
    async def run(self, program: str, receive: Receive, lost: Lost) -> SshProcess:
        import asyncssh

        while True:
            connection = await self._with_room()
            try:
                return await connection.open(program, receive, lost)
            except asyncssh.ChannelOpenError as error:
                connection.limit = connection.sessions
                if connection.limit <= 1 or connection.transport.is_closed():
                    raise SandboxUnavailable(f"{self.address} opens no session: {error}") from error
            except (asyncssh.Error, OSError) as error:
                raise SandboxUnavailable(f"{self.address} opens no session: {error}") from error

    @override
    async def launch(self, resources: Resources) -> Launch:
        limits = resources.applied_to(self._limits)
        if self._facts is None:
            self._facts = await look(self, limits.start_timeout_s)
        return bubblewrap_launch(limits, self._facts)

    async def close(self) -> None:
        """End the connections."""
        for connection in self._connections:
            connection.close()
        for connection in self._connections:
            await connection.transport.wait_closed()
        self._connections.clear()

    async def _with_room(self) -> _Connection:
        """Return a connection that has room for a session, with that session counted.

        Who waits while another fails to connect fails with it.
        """
        known = self._failure
        async with self._connecting:
            for connection in list(self._connections):
                if connection.transport.is_closed():
                    connection.close()
                    self._connections.remove(connection)
            free = [each for each in self._connections if each.sessions < each.limit]
            if not free and self._failure is not None and self._failure is not known:
                raise self._failure
            connection = free[0] if free else await self._connect_once()
            connection.sessions += 1
            return connection

    async def _connect_once(self) -> _Connection:
        try:
            connection = await self._connect()
        except SandboxUnavailable as failure:
            self._failure, self._rests_until = failure, monotonic() + REST_S
            raise
        self._failure, self._rests_until = None, 0.0
        self._connections.append(connection)
        return connection

    async def _connect(self) -> _Connection:
        import asyncssh

        limits = self._limits
        user, _, place = self.address.rpartition("@")
        name, _, port = place.partition(":")
        options: dict[str, Any] = {"keepalive_interval": limits.lease_s / 4, "keepalive_count_max": 3}
        if user:
            options["username"] = user
        if limits.client_keys:
            options["client_keys"] = list(limits.client_keys)
        if limits.known_hosts is not None or not limits.check_host_key:
            options["known_hosts"] = limits.known_hosts if limits.check_host_key else None
        try:
            async with asyncio.timeout(limits.connect_timeout_s):
                transport = await asyncssh.connect(name, int(port) if port else (), **options)
            connection = _Connection(transport, limits.max_sessions)
            await connection.guard(limits.lease_s)
        except asyncssh.HostKeyNotVerifiable as error:
            fix = "put it into known_hosts once you have made sure that it is the host's"
            raise SandboxUnavailable(
                f"the host key of {self.address} is not known: {fix}", retryable=False
            ) from error
        except asyncssh.PermissionDenied as error:
            raise SandboxUnavailable(f"{self.address} lets nobody in: {error}", retryable=False) from error
        except (asyncssh.Error, OSError, TimeoutError) as error:
            raise SandboxUnavailable(f"{self.address} can't be reached: {error or 'no answer'}") from error
        return connection
