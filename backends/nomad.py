"""Sandboxes in containers that Nomad places: several bubblewrap sandboxes in each.

One job is one container, so that which container goes when demand falls is ours to say. A container lives
by a lease that its harness renews over a stream; when the harness dies the stream ends and the container
with it, and where nobody ever came for a container it ends by itself. The job that is left is dead, and the
next backend that starts purges it.
"""

import asyncio
import logging
import time
import uuid
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from typing_extensions import override

from backends.bubblewrap import HostFacts
from backends.finish import finish
from backends.host_facts import bubblewrap_launch, look
from backends.link import Receive, Sandbox, record
from backends.maker import Maker
from backends.nomad_api import NomadApi
from backends.nomad_job import GUARD, PREFIX, TASK, NomadLimits, job_request
from backends.owner import Owner
from backends.remote import COMMAND, Host, Launch, Lost, Process, RemoteSandbox
from backends.resources import Resources
from backends.warden import Warden
from trajectories.errors import CapacityExceeded, ConfigError, SandboxUnavailable

log = logging.getLogger(__name__)

MAX_LIFE_S = 24 * 3600.0
"""After this any backend that starts purges a job, whoever owns it."""


class Container(Host):
    """One job with its container, placed when it is first used."""

    def __init__(self, api: NomadApi, image: str, limits: NomadLimits, meta: dict[str, str]):
        self.job = f"{PREFIX}{uuid.uuid4().hex}"
        self.address = f"container {self.job}"
        self.image = image
        self.idle_since: float | None = None
        self.gone = False
        """Whether it ended; no sandbox can be started in it."""
        self._api = api
        self._limits = limits
        self._meta = meta
        self._allocation = ""
        self._placing = asyncio.create_task(self._place())
        self._beat: asyncio.Task[None] | None = None

    @override
    async def launch(self, resources: Resources) -> Launch:
        limits = resources.applied_to(self._limits)
        return bubblewrap_launch(limits, await asyncio.shield(self._placing))

    @override
    async def run(self, program: str, receive: Receive, lost: Lost) -> Process:
        process = await self._api.exec(self._allocation, TASK, COMMAND, receive, lost)
        process.write(record(program))
        return process

    async def remove(self) -> None:
        """Purge the job; its container goes with it."""
        self.gone = True
        self._placing.cancel()
        if self._beat is not None:
            self._beat.cancel()
        await asyncio.wait({self._placing})
        if not self._placing.cancelled():
            self._placing.exception()  # it was raised to whoever waited
        await purge(self._api, self.job)

    async def _place(self) -> HostFacts:
        limits = self._limits
        try:
            await self._api.call("PUT", "/jobs", job_request(self.job, self.image, limits, self._meta))
            async with asyncio.timeout(limits.place_timeout_s):
                self._allocation = await self._placed()
            program = GUARD.format(lease_s=limits.lease_s)
            guard = await self.run(program, self._guard_says, lambda reason: None)
            self._beat = asyncio.create_task(self._keep(guard))
            return await look(self, limits.start_timeout_s)
        except TimeoutError as error:
            self.gone = True
            raise SandboxUnavailable(
                f"Nomad placed no container within {limits.place_timeout_s:g} s: {await self._reason()}"
            ) from error
        except BaseException:
            self.gone = True
            raise

    async def _placed(self) -> str:
        """Wait until the container runs, and return its allocation."""
        index = 0
        while True:
            found, index = await self._api.call(
                "GET", f"/job/{self.job}/allocations", index=str(index), wait="10s"
            )
            if found is None:
                raise SandboxUnavailable("the job was removed before its container ran")
            for allocation in found:
                status = allocation["ClientStatus"]
                if status == "running":
                    return allocation["ID"]
                if status != "pending":
                    raise SandboxUnavailable(f"the container is {status}: {_last_event(allocation)}")

    async def _reason(self) -> str:
        with suppress(SandboxUnavailable, KeyError, IndexError, TypeError):
            evaluations, _ = await self._api.call("GET", f"/job/{self.job}/evaluations")
            failed = [entry["FailedTGAllocs"] for entry in evaluations if entry.get("FailedTGAllocs")]
            if failed:
                return f"no node fits: {failed[-1][TASK]}"
        return "it is still pending"

    async def _keep(self, guard: Process) -> None:
        while True:
            guard.write(b"\n")
            await asyncio.sleep(self._limits.lease_s / 4)

    def _guard_says(self, channel: int, data: bytes) -> None:
        if not data:
            self.gone = True


class NomadMaker(Maker):
    """Makes sandboxes in containers, and as many containers as the sandboxes need."""

    def __init__(self, limits: NomadLimits):
        scope = {"namespace": limits.namespace, "region": limits.region}
        self._limits = limits
        self._api = NomadApi(
            limits.address.rstrip("/"),
            _token(limits),
            {name: value for name, value in scope.items() if value},
        )
        self._run_id = uuid.uuid4().hex
        self._containers: list[Container] = []
        self._shrinking: asyncio.Task[None] | None = None

    @override
    async def check(self) -> None:
        await reap(self._api)
        if self._shrinking is None:
            self._shrinking = asyncio.create_task(self._shrink())

    @override
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        for container in [each for each in self._containers if each.gone]:
            await finish(self._remove(container))
        warden, container = Warden(), self._with_room(image or self._limits.image)
        timeout_s = self._limits.start_timeout_s
        return await RemoteSandbox.start(container, warden, resources, timeout_s), warden

    @override
    async def close(self) -> None:
        if self._shrinking is not None:
            self._shrinking.cancel()
        await asyncio.gather(*(self._remove(container) for container in list(self._containers)))
        await self._api.close()

    def _with_room(self, image: str) -> Container:
        """Return the fullest container of an image that has room, so that others become empty."""
        limits = self._limits
        room = [
            each
            for each in self._containers
            if each.image == image and not each.gone and each.sandboxes < limits.slots_per_container
        ]
        if room:
            return max(room, key=lambda container: container.sandboxes)
        if len(self._containers) >= limits.max_containers:
            raise CapacityExceeded(f"all {limits.max_containers} containers (max_containers) are full")
        expires = str(int(time.time() + MAX_LIFE_S))
        meta = {"lachesis.run": self._run_id, "lachesis.expires": expires, **Owner.current().labels()}
        self._containers.append(Container(self._api, image, limits, meta))
        return self._containers[-1]

    async def _shrink(self) -> None:
        """Give back containers that have been without a sandbox for a while."""
        while True:
            await asyncio.sleep(self._limits.idle_s / 4)
            for container in list(self._containers):
                if container.sandboxes:
                    container.idle_since = None
                    continue
                container.idle_since = container.idle_since or monotonic()
                if container.gone or monotonic() - container.idle_since >= self._limits.idle_s:
                    await finish(self._remove(container))

    async def _remove(self, container: Container) -> None:
        if container in self._containers:
            self._containers.remove(container)
            try:
                await container.remove()
            except SandboxUnavailable as error:
                log.error("%s could not be removed and ends by its lease: %s", container.address, error)


async def reap(api: NomadApi) -> list[str]:
    """Purge the jobs of harnesses of this boot that have ended, and those that have outlived their expiry.

    Raises:
        SandboxUnavailable: Nomad can't be reached, or refuses.
    """
    jobs, _ = await api.call("GET", "/jobs", prefix=PREFIX)
    taken = list[str]()
    for entry in jobs:
        job, _ = await api.call("GET", f"/job/{entry['ID']}")
        meta = (job or {}).get("Meta") or {}
        owner, expires = Owner.of(meta), meta.get("lachesis.expires", "")
        if (owner is not None and owner.is_gone()) or (expires.isdigit() and int(expires) < time.time()):
            await purge(api, entry["ID"])
            taken.append(entry["ID"])
    return taken


async def purge(api: NomadApi, job: str) -> None:
    """Stop a job and forget it; not an error if it is not known.

    Raises:
        SandboxUnavailable: Nomad can't be reached, or refuses.
    """
    await api.call("DELETE", f"/job/{job}", purge="true")


def _last_event(allocation: dict[str, Any]) -> str:
    states = (allocation.get("TaskStates") or {}).values()
    events = [event for state in states for event in state.get("Events") or []]
    return events[-1].get("DisplayMessage", "") if events else "Nomad does not say why"


def _token(limits: NomadLimits) -> str | None:
    if limits.token_file is None:
        return None
    try:
        return Path(limits.token_file).read_text().strip()
    except OSError as error:
        raise ConfigError(f"token_file: {limits.token_file} can't be read: {error.strerror}") from error
