"""Slots for many tasks: warm ones ahead of demand, a bounded number, in the order they were asked for.

A released sandbox is destroyed and a fresh one made in its place; cleaning is never trusted unless a pool
is told to reuse, and then it has to be proven. Whatever happens to a caller (exception, cancellation, never
coming back), its sandbox and its place in the queue are given back.
"""

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from typing_extensions import override

from backends import transfer
from backends.base import Acquisition, Command, ExecutionResult, Slot, ToolBackend
from backends.finish import finish
from backends.machine import Machine, OutputLimits
from backends.maker import Maker
from backends.metrics import PoolMetrics
from backends.resources import USUAL, Resources
from backends.slot import ShellSlot
from trajectories.errors import CapacityExceeded, ConfigError, SandboxError, SandboxUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many sandboxes, and for how long."""

    max_slots: int = 32
    """Leased at a time; the warm ones come on top."""
    warm: int = 2
    """Kept ready of the default image; `Pool.prefetch` keeps others ready."""
    max_creating: int = 4
    """Created at a time. Engines deadlock or slow down when asked for many at once."""
    max_created_per_s: float = 50.0
    acquire_timeout_s: float = 300.0
    max_idle_s: float = 600.0
    """A warm or kept sandbox that nobody wanted for longer is destroyed."""
    max_age_s: float = 24 * 3600.0
    """A sandbox is destroyed at this age, leased or not; what runs in it raises `SandboxDied`.

    It ages while its rollout waits, too, even for new weights.
    """
    reuse: bool = False
    """Hand a released sandbox on once it is proven clean, instead of making a new one."""
    workspace_from: Path | None = None
    """Host directory whose contents every workspace starts with; changes stay in the sandbox. Where a sandbox
    can lay its own files over it, nothing is copied, and it must not change while sandboxes use it."""

    def __post_init__(self) -> None:
        for name in ("max_slots", "max_creating", "max_created_per_s", "max_idle_s", "max_age_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: must be positive, not {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True, eq=False)
class _Idle:
    machine: Machine
    since: float


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a sandbox starts from and may use; those of one kind can stand in for each other."""

    image: str | None = None
    resources: Resources = USUAL


DEFAULT = _Kind()


class Pool(ToolBackend):
    """Any kind of sandbox, leased as slots."""

    def __init__(self, maker: Maker, limits: PoolLimits, output: OutputLimits):
        self.metrics = PoolMetrics()
        self._maker = maker
        self._limits = limits
        self._output = output
        self._places = asyncio.Semaphore(limits.max_slots)
        self._creating = asyncio.Semaphore(limits.max_creating)
        self._next_creation = 0.0
        self._warm: dict[_Kind, deque[_Idle]] = defaultdict(deque)
        self._filling: Counter[_Kind] = Counter()
        self._wanted: dict[_Kind, int] = {DEFAULT: limits.warm}
        self._kept: dict[tuple[str, _Kind], _Idle] = {}
        self._leased: dict[ShellSlot, _Kind] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._started = self._stopped = False
        self._stopping = asyncio.Lock()

    @override
    async def start(self) -> None:
        self._started = True
        try:
            await self._maker.check()
            self._warm[DEFAULT].append(_Idle(await self._create(DEFAULT), monotonic()))
        except BaseException:
            await self.stop()
            raise
        self._chore(self._refill(DEFAULT))
        self._chore(self._discard_old())

    @override
    async def stop(self) -> None:
        self._stopped = True
        await finish(self._stop())

    @override
    def acquire(
        self,
        task_id: str,
        *,
        image: str | None = None,
        resources: Resources = USUAL,
        timeout_s: float | None = None,
    ) -> Acquisition:
        kind = _Kind(image, resources)
        return Acquisition(lambda: self._acquire(task_id, kind, timeout_s), self.release)

    @override
    async def release(self, slot: Slot, reset_workspace: bool = True) -> None:
        if not isinstance(slot, ShellSlot) or slot not in self._leased:
            return
        kind = self._leased.pop(slot)
        await finish(self._give_back(slot, kind, reset_workspace))

    @override
    async def execute_batch(self, commands: Iterable[Command]) -> list[ExecutionResult | BaseException]:
        runs = (entry.slot.exec(entry.command, timeout_s=entry.timeout_s) for entry in commands)
        return await asyncio.gather(*runs, return_exceptions=True)

    async def prefetch(self, image: str | None, count: int, resources: Resources = USUAL) -> None:
        """Keep ``count`` slots of an image warm from now on; make those that nobody is making yet."""
        kind = _Kind(image, resources)
        self._wanted[kind] = count
        await self._refill(kind)

    async def _acquire(self, task_id: str, kind: _Kind, timeout_s: float | None) -> ShellSlot:
        limit_s = self._limits.acquire_timeout_s if timeout_s is None else timeout_s
        asked = monotonic()
        try:
            async with asyncio.timeout(limit_s):
                await self._places.acquire()
                self.metrics.waiting.add(monotonic() - asked)
                try:
                    machine = await self._take(task_id, kind)
                except BaseException:
                    self._places.release()
                    raise
        except TimeoutError:
            busy = f"{len(self._leased)} of {self._limits.max_slots} slots are leased"
            raise CapacityExceeded(f"no slot within {limit_s:g} s; {busy}") from None
        slot = ShellSlot(task_id, machine)
        self._leased[slot] = kind
        self._chore(self._refill(kind))
        self.metrics.acquiring.add(monotonic() - asked)
        return slot

    async def _take(self, task_id: str, kind: _Kind) -> Machine:
        self._check_open()
        kept_or_warm = await self._take_kept(task_id, kind) or await self._take_warm(kind)
        machine = kept_or_warm or await self._create(kind)
        if self._stopped:
            await self._destroy(machine)
        self._check_open()
        return machine

    async def _take_kept(self, task_id: str, kind: _Kind) -> Machine | None:
        idle = self._kept.pop((task_id, kind), None)
        return None if idle is None else await self._living(idle)

    async def _take_warm(self, kind: _Kind) -> Machine | None:
        while self._warm[kind]:
            if machine := await self._living(self._warm[kind].popleft()):
                return machine
        return None

    async def _living(self, idle: _Idle) -> Machine | None:
        """Return the sandbox if it still works; a dead one is destroyed and never handed out."""
        try:
            if await idle.machine.alive():
                return idle.machine
        except BaseException:
            await self._destroy(idle.machine)
            raise
        self.metrics.found_dead += 1
        await self._destroy(idle.machine)
        return None

    async def _create(self, kind: _Kind) -> Machine:
        async with self._creating:
            self._check_open()
            now = monotonic()
            turn = max(now, self._next_creation)
            self._next_creation = turn + 1 / self._limits.max_created_per_s
            await asyncio.sleep(turn - now)
            self._check_open()
            began = monotonic()
            sandbox, warden = await self._maker.make(kind.image, kind.resources)
            machine = Machine(sandbox, warden, self._output)
            try:
                await machine.open()
                if self._limits.workspace_from is not None and not sandbox.furnished:
                    await transfer.upload(machine, self._limits.workspace_from, ".")
                self._check_open()
            except BaseException:
                await self._destroy(machine)
                raise
            self.metrics.creating.add(monotonic() - began)
            return machine

    async def _give_back(self, slot: ShellSlot, kind: _Kind, reset_workspace: bool) -> None:
        machine = slot.expire()
        try:
            if self._stopped or machine.warden.cause is not None:
                await self._destroy(machine)
            elif not reset_workspace:
                previous = self._kept.get((slot.task_id, kind))
                self._kept[slot.task_id, kind] = _Idle(machine, monotonic())
                if previous is not None:
                    await self._destroy(previous.machine)
            elif self._limits.reuse and await self._proven_clean(machine) and not self._stopped:
                self._warm[kind].append(_Idle(machine, monotonic()))
            else:
                await self._destroy(machine)
                self._chore(self._refill(kind))
        finally:
            self._places.release()

    async def _proven_clean(self, machine: Machine) -> bool:
        began = monotonic()
        try:
            await machine.reset()
            if self._limits.workspace_from is not None:
                await transfer.upload(machine, self._limits.workspace_from, ".")
        except (SandboxError, OSError) as error:
            self.metrics.not_clean += 1
            log.warning("a sandbox was not proven clean and is destroyed: %s", error)
            return False
        self.metrics.resetting.add(monotonic() - began)
        return True

    async def _destroy(self, machine: Machine) -> None:
        began = monotonic()
        try:
            await finish(machine.destroy())
        except (SandboxError, TimeoutError, OSError) as error:
            self.metrics.not_destroyed += 1
            log.error("a sandbox could not be destroyed: %s", error)
        self.metrics.destroying.add(monotonic() - began)

    async def _refill(self, kind: _Kind) -> None:
        """Make warm slots until there are as many as wanted."""
        while len(self._warm[kind]) + self._filling[kind] < self._wanted.get(kind, 0):
            self._filling[kind] += 1
            try:
                machine = await self._create(kind)
            finally:
                self._filling[kind] -= 1
            self._warm[kind].append(_Idle(machine, monotonic()))

    async def _discard_old(self) -> None:
        max_idle_s, max_age_s = self._limits.max_idle_s, self._limits.max_age_s
        while True:
            await asyncio.sleep(min(max_idle_s / 4, max_age_s / 4, 60.0))
            now = monotonic()
            aged = [slot.machine for slot in self._leased if now - slot.machine.born > max_age_s]
            for machine in aged:
                machine.warden.mourn(f"the sandbox reached max_age_s={max_age_s:g}")
            unwanted = [key for key, idle in self._kept.items() if self._is_old(idle, now)]
            old = [self._kept.pop(key) for key in unwanted]
            for queue in self._warm.values():
                old += [idle for idle in queue if self._is_old(idle, now)]
                for idle in set(queue).intersection(old):
                    queue.remove(idle)
            for machine in (*aged, *(idle.machine for idle in old)):
                await self._destroy(machine)
            for kind in list(self._warm):
                self._chore(self._refill(kind))

    def _is_old(self, idle: _Idle, now: float) -> bool:
        return now - idle.since > self._limits.max_idle_s or now - idle.machine.born > self._limits.max_age_s

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except SandboxError as error:  # the next acquire meets it again, and raises it to its caller
                if not self._stopped:
                    log.warning("no warm sandbox could be made: %s", error)

        task = asyncio.create_task(run())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _stop(self) -> None:
        async with self._stopping:
            for chore in list(self._chores):
                chore.cancel()
            if self._chores:
                await asyncio.wait(self._chores)
            machines = [slot.expire() for slot in self._leased]
            machines += [idle.machine for idle in self._kept.values()]
            machines += [idle.machine for queue in self._warm.values() for idle in queue]
            for _ in self._leased:
                self._places.release()
            self._leased.clear()
            self._kept.clear()
            self._warm.clear()
            await asyncio.gather(*(self._destroy(machine) for machine in machines))
            for _ in range(self._limits.max_slots):  # whoever is being served, or gives back, cleans up first
                await self._places.acquire()
            await self._maker.close()
            for _ in range(self._limits.max_slots):
                self._places.release()

    def _check_open(self) -> None:
        if not self._started:
            raise RuntimeError("the backend was not started: use `async with backend:`")
        if self._stopped:
            raise SandboxUnavailable("the backend was stopped", retryable=False)
