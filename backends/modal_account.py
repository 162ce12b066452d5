"""One Modal account: its sandboxes are created, listed and terminated here, and nowhere else.

A sandbox is only gone once Modal has confirmed it. A termination that could not be confirmed is remembered
and tried again until it is; beyond that every sandbox ends by itself when its harness falls silent, because
its entrypoint lives on a lease that is renewed on its standard input.
"""

import asyncio
import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from backends.owner import Owner
from trajectories.errors import ConfigError, SandboxDied, SandboxUnavailable

if TYPE_CHECKING:
    import modal

log = logging.getLogger(__name__)

MAX_CREATING = 25
ENTRYPOINT = "while read -r -t {lease_s} _; do :; done"
CONFIRM_TIMEOUT_S = 20.0
RETRY_S = 5.0
"""Between attempts to terminate what was not confirmed."""


@dataclass(frozen=True, slots=True)
class ModalLimits:
    """How Modal is used, and what one sandbox may use there."""

    POOL: ClassVar[dict[str, Any]] = {"max_creating": MAX_CREATING, "warm": 0}
    """Options of the pool whose defaults are others here."""

    max_creating: int = MAX_CREATING
    """See `PoolLimits`; one that was given up counts as long as Modal may still be starting it."""
    image: str = "debian_slim"
    """Default image: ``debian_slim`` is Modal's own, ``dockerfile:PATH`` is built there, ``im-…`` is one of
    the account's (a snapshot, say), and anything else is the name of one in a registry. It needs bash and
    util-linux."""
    app: str = "lachesis"
    """Name of the Modal app that the sandboxes belong to; made if it isn't there."""
    profiles: tuple[str, ...] = ()
    """Profiles of Modal's configuration file, one account each, among which sandboxes are spread; the active
    one if empty. Tokens are no options: options are saved with the data."""
    secrets: tuple[str, ...] = ()
    """Names of Modal secrets that sandboxes get as variables; the agent can read them."""
    network: bool = False
    """Whether sandboxes can reach the network."""
    user: int = 1000
    """Whom commands run as; 0 for images whose files only root may change, still without capabilities."""
    workspace: str = "/workspace"
    cpus: float = 1.0
    memory_mb: int = 4096
    processes: int = 512
    region: str | None = None
    vm: bool = False
    """Whether sandboxes get a kernel of their own instead of gVisor."""
    start_budget_s: float = 300.0
    """For a sandbox to be created and ready, rate limits waited out; what takes longer is given up."""
    max_life_s: int = 24 * 3600
    lease_s: float = 120.0
    """A sandbox ends if its harness is not heard of for this long."""

    def __post_init__(self) -> None:
        for name in ("max_creating", "start_budget_s", "max_life_s", "lease_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: must be positive, not {getattr(self, name)!r}")


class ModalAccount:
    """One profile's client and app."""

    def __init__(self, profile: str | None, limits: ModalLimits, starting: asyncio.Semaphore):
        self.name = profile or "the active profile"
        self.unconfirmed: dict[str, modal.Sandbox] = {}
        """Sandboxes that may still run although they were terminated."""
        self._profile = profile
        self._limits = limits
        self._starting = starting
        self._client: modal.Client | None = None
        self._owns_client = False
        self._app: modal.App | None = None
        self._opening = asyncio.Lock()
        self._creating = 0
        self._live: set[str] = set()
        self._late: set[asyncio.Task[modal.Sandbox]] = set()
        self._retrying: asyncio.Task[None] | None = None

    @property
    def sandboxes(self) -> int:
        """How many are being created or run."""
        return self._creating + len(self._live)

    async def open(self) -> None:
        """Connect, and end what harnesses of this boot have left behind.

        Raises:
            SandboxUnavailable: Modal can't be reached, or does not know the account.
        """
        import modal

        async with self._opening:
            if self._app is not None:
                return
            try:
                self._client = await self._connect()
                self._app = await modal.App.lookup.aio(
                    self._limits.app, client=self._client, create_if_missing=True
                )
                await self.reap()
            except modal.exception.Error as error:
                raise self.failure(error) from error
            self._retrying = asyncio.create_task(self._retry())

    async def create(self, image: str, limits: ModalLimits) -> "modal.Sandbox":
        """Create a sandbox within limits, waiting out rate limits until cancelled.

        Raises:
            SandboxUnavailable: Modal refuses, or can't be reached.
        """
        self._creating += 1
        try:
            await self.open()
            sandbox = await self._create_patiently(image, limits)
            self._live.add(sandbox.object_id)
            return sandbox
        finally:
            self._creating -= 1

    async def terminate(self, sandbox: "modal.Sandbox") -> None:
        """End a sandbox and wait until Modal confirms it; what is not confirmed is tried again later.

        Raises:
            SandboxDied: It was not confirmed in time.
        """
        self._live.discard(sandbox.object_id)
        if not await self._terminated(sandbox):
            self.unconfirmed[sandbox.object_id] = sandbox
            raise SandboxDied(f"Modal did not confirm the end of {sandbox.object_id}; it will be tried again")

    async def reap(self) -> list[str]:
        """Terminate the sandboxes of harnesses of this boot that have ended, and return their ids."""
        import modal

        assert self._app is not None
        me, taken = Owner.current(), list[str]()
        tags = {"lachesis-boot": me.boot_id}
        async for sandbox in modal.Sandbox.list.aio(app_id=self._app.app_id, tags=tags, client=self._client):
            pid, _, started = (await sandbox.get_tags.aio()).get("lachesis-owner", "").partition("-")
            if pid.isdigit() and started.isdigit() and Owner(int(pid), int(started), me.boot_id).is_gone():
                self.unconfirmed[sandbox.object_id] = sandbox
                taken.append(sandbox.object_id)
        await asyncio.gather(*(self._terminated(sandbox) for sandbox in list(self.unconfirmed.values())))
        return taken

    async def close(self) -> None:
        """Try once more to end what is not confirmed, and disconnect."""
        if self._retrying is not None:
            self._retrying.cancel()
        if self._late:
            await asyncio.wait(self._late, timeout=CONFIRM_TIMEOUT_S)
        await asyncio.gather(*(self._terminated(sandbox) for sandbox in list(self.unconfirmed.values())))
        for sandbox_id in self.unconfirmed:
            log.error("Modal did not confirm the end of %s; it ends by its lease", sandbox_id)
        if self._client is not None and self._owns_client:
            await self._client.close.aio()
        self._client = self._app = None

    def failure(self, error: Exception) -> SandboxUnavailable:
        """Say what an error of the SDK means."""
        import modal

        if isinstance(error, modal.exception.AuthError):
            fix = "run `modal token new`, or name a profile that has a token"
            return SandboxUnavailable(f"Modal does not know {self.name}: {error}; {fix}", retryable=False)
        ours = isinstance(
            error,
            modal.exception.InvalidError
            | modal.exception.NotFoundError
            | modal.exception.PermissionDeniedError
            | modal.exception.ImageBuildError,
        )
        return SandboxUnavailable(f"Modal ({self.name}): {type(error).__name__}: {error}", retryable=not ours)

    async def _connect(self) -> "modal.Client":
        import modal
        from modal.config import config

        if self._profile is None:
            token, secret = config.get("token_id"), config.get("token_secret")
        else:
            token, secret = (
                config.get(name, profile=self._profile, use_env=False)
                for name in ("token_id", "token_secret")
            )
            if not (token and secret):
                raise modal.exception.AuthError("the configuration has no token for it")
        if token and secret:
            client = await modal.Client.from_credentials.aio(token, secret)
            self._owns_client = True
        else:
            client = await modal.Client.from_env.aio()
        await client.hello.aio()
        return client

    async def _create_patiently(self, image: str, limits: ModalLimits) -> "modal.Sandbox":
        import modal

        attempt = 0
        while True:
            await self._starting.acquire()
            creating = asyncio.create_task(self._create(image, limits))
            creating.add_done_callback(lambda _: self._starting.release())
            try:
                return await asyncio.shield(creating)
            except modal.exception.ResourceExhaustedError as error:
                attempt += 1
                delay_s = min(0.5 * 2**attempt, 15.0) * random.uniform(0.5, 1.0)
                log.info("Modal limits the rate: %s; next attempt in %.1f s", error, delay_s)
                await asyncio.sleep(delay_s)
            except modal.exception.Error as error:
                raise self.failure(error) from error
            except asyncio.CancelledError:
                self._await_late(creating)
                raise

    async def _create(self, name: str, limits: ModalLimits) -> "modal.Sandbox":
        import modal

        owner = Owner.current()
        return await modal.Sandbox.create.aio(
            *("bash", "--noprofile", "--norc", "-c", ENTRYPOINT.format(lease_s=limits.lease_s)),
            app=self._app,
            client=self._client,
            image=await self._image(name),
            secrets=[modal.Secret.from_name(secret) for secret in limits.secrets],
            tags={
                "lachesis-boot": owner.boot_id,
                "lachesis-owner": f"{owner.pid}-{owner.started_ticks}",
                "lachesis-created": str(int(time.time())),
            },
            timeout=limits.max_life_s,
            cpu=limits.cpus,
            memory=(limits.memory_mb, limits.memory_mb),
            region=limits.region,
            block_network=not limits.network,
            experimental_options={"vm_runtime": True} if limits.vm else None,
        )

    async def _image(self, name: str) -> "modal.Image":
        import modal

        kind, _, path = name.partition(":")
        if name == "debian_slim":
            return modal.Image.debian_slim()
        if kind == "dockerfile":
            if not await asyncio.to_thread(Path(path).is_file):
                raise ConfigError(f"image: there is no Dockerfile at {path}")
            return modal.Image.from_dockerfile(path)
        if name.startswith("im-"):
            return modal.Image.from_id(name, client=self._client)
        return modal.Image.from_registry(name)

    def _await_late(self, creating: "asyncio.Task[modal.Sandbox]") -> None:
        """End a sandbox that comes after nobody waits for it any more; one that never comes is let go."""
        self._late.add(creating)
        asyncio.get_running_loop().call_later(self._limits.start_budget_s, creating.cancel)

        def came(task: "asyncio.Task[modal.Sandbox]") -> None:
            self._late.discard(task)
            if not task.cancelled() and task.exception() is None:
                self.unconfirmed[task.result().object_id] = task.result()

        creating.add_done_callback(came)

    async def _terminated(self, sandbox: "modal.Sandbox") -> bool:
        import modal

        with suppress(modal.exception.Error, OSError, TimeoutError):
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                await sandbox.terminate.aio(wait=True)
                await sandbox.detach.aio()
            self.unconfirmed.pop(sandbox.object_id, None)
            return True
        return False

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            await asyncio.gather(*(self._terminated(sandbox) for sandbox in list(self.unconfirmed.values())))
