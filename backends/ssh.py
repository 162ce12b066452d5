"""Sandboxes on other hosts, over SSH: bubblewrap namespaces there, as on this host.

Nothing is installed or written there, and nothing is left: a sandbox's first process ends with its channel,
and a connection that is cut is ended on both sides.
"""

import logging

from typing_extensions import override

from backends.link import Sandbox
from backends.maker import Maker
from backends.remote import RemoteSandbox
from backends.resources import USUAL, Resources
from backends.ssh_host import SshHost, SshLimits
from backends.warden import Warden
from trajectories.errors import ConfigError, SandboxUnavailable

log = logging.getLogger(__name__)


class SshMaker(Maker):
    """Makes sandboxes on the host that has the fewest, of those that could be reached if there are some."""

    def __init__(self, limits: SshLimits):
        try:
            import asyncssh  # noqa: F401
        except ImportError as error:
            raise ConfigError("the ssh backend needs the extra: pip install 'lachesis-rl[ssh]'") from error
        self._limits = limits
        self._hosts = [SshHost(address.strip(), limits) for address in limits.host.split(",")]

    @override
    async def check(self) -> None:
        """Look at every host; those that can't be used are passed over as long as one can."""
        failures = list[SandboxUnavailable]()
        for host in self._hosts:
            try:
                await host.launch(USUAL)
            except SandboxUnavailable as failure:
                log.warning("no sandboxes on %s: %s", host.address, failure)
                failures.append(failure)
        if len(failures) == len(self._hosts):
            raise failures[0]

    @override
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        if image is not None:
            raise ConfigError("image: the ssh backend has none; use the docker, nomad or modal backend")
        failures = list[SandboxUnavailable]()
        for host in sorted(self._hosts, key=lambda host: (host.rests, host.sandboxes)):
            try:
                return await self._make_on(host, resources)
            except SandboxUnavailable as failure:
                failures.append(failure)
        raise failures[0]

    @override
    async def close(self) -> None:
        for host in self._hosts:
            await host.close()

    async def _make_on(self, host: SshHost, resources: Resources) -> tuple[Sandbox, Warden]:
        warden = Warden()
        return await RemoteSandbox.start(host, warden, resources, self._limits.start_timeout_s), warden
