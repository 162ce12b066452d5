"""Conformance: getting a slot, giving it back, and what is left of it."""

import asyncio
from contextlib import suppress

from backends.base import Slot
from backends.check import Factory, expect, on_backend, output_of, require
from trajectories.errors import CapacityExceeded, LeaseExpired, SandboxDied, SandboxUnavailable


@on_backend
async def a_slot_is_dead_once_released(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        slot = await backend.acquire("a")
        await backend.release(slot)
        await backend.release(slot)
        for use in (slot.exec("true"), slot.read_file("x"), slot.write_file("x", b"")):
            try:
                await use
            except LeaseExpired:
                continue
            raise AssertionError("a released slot was used")


@on_backend
async def every_task_starts_clean(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        for _ in range(2):
            async with backend.acquire("same") as slot:
                traces = "ls -A . ~ /tmp /dev/shm | grep -v : ; jobs; echo ${A-unset}"
                expect((await output_of(slot, traces)).split(), ["unset"])
                await slot.exec("touch x ~/x /tmp/x /dev/shm/x; export A=1; sleep 651 &")


@on_backend
async def a_reused_sandbox_is_proven_clean(factory: Factory) -> None:
    async with factory(warm=0, reuse=True, max_slots=1) as backend:
        for _ in range(3):
            async with backend.acquire("same") as slot:
                traces = (
                    "ls -A . ~ /tmp /dev/shm | grep -v : ; ls /proc | grep -c '^[0-9]'; echo ${A-unset}; pwd"
                )
                count, *rest = (await output_of(slot, traces)).split()
                expect((int(count) < 12, rest), (True, ["unset", slot.workspace]))
                await slot.exec(
                    "touch x .x ~/x /tmp/x /dev/shm/x; mkdir -p d/e; export A=1; setsid sleep 652 & cd d"
                )


@on_backend
async def a_sandbox_that_cannot_be_cleaned_is_not_reused(factory: Factory) -> None:
    async with factory(warm=0, reuse=True, max_slots=1) as backend:
        async with backend.acquire("a") as slot:
            await slot.exec("mkdir -p d/e; touch d/e/f; chmod 0 d/e")
        async with backend.acquire("b") as slot:
            expect(await output_of(slot, "ls -A"), "")


@on_backend
async def a_workspace_can_be_kept_for_its_task(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        slot = await backend.acquire("a")
        await slot.exec("echo mine >file")
        await backend.release(slot, reset_workspace=False)
        async with backend.acquire("b") as other:
            expect(await output_of(other, "ls"), "")
        async with backend.acquire("a") as again:
            expect(await output_of(again, "cat file"), "mine")
            require(again is not slot, "the old lease came to life again")


@on_backend
async def a_full_pool_says_so_in_time(factory: Factory) -> None:
    async with factory(warm=0, max_slots=1) as backend, backend.acquire("a"):
        try:
            await backend.acquire("b", timeout_s=0.1)
        except CapacityExceeded:
            return
        raise AssertionError("more slots were leased than there are")


@on_backend
async def waiters_are_served_in_order(factory: Factory) -> None:
    served = list[int]()

    async def wait_for_slot(number: int) -> None:
        async with backend.acquire(str(number)):
            served.append(number)

    async with factory(warm=0, max_slots=1) as backend:
        slot = await backend.acquire("first")
        waiters = list[asyncio.Task[None]]()
        for number in range(3):
            waiters.append(asyncio.create_task(wait_for_slot(number)))
            await asyncio.sleep(0)
        await backend.release(slot)
        await asyncio.gather(*waiters)
    expect(served, [0, 1, 2])


@on_backend
async def a_cancelled_waiter_takes_no_place(factory: Factory) -> None:
    async def hold(name: str) -> None:
        async with backend.acquire(name) as slot:
            await slot.exec("sleep 600")

    async with factory(warm=0, max_slots=1) as backend:
        holder = asyncio.create_task(hold("a"))
        waiters = [asyncio.create_task(hold(str(n))) for n in range(3)]
        await asyncio.sleep(0.1)
        for task in (*waiters, holder):
            task.cancel()
        await asyncio.gather(holder, *waiters, return_exceptions=True)
        async with backend.acquire("b", timeout_s=30) as slot:
            expect(await output_of(slot, "echo fine"), "fine")


@on_backend
async def an_exception_gives_the_slot_back(factory: Factory) -> None:
    async with factory(warm=0, max_slots=1) as backend:
        with suppress(ZeroDivisionError):
            async with backend.acquire("a"):
                raise ZeroDivisionError
        async with backend.acquire("b", timeout_s=30) as slot:
            expect(await output_of(slot, "echo fine"), "fine")


@on_backend
async def slots_work_at_the_same_time(factory: Factory) -> None:
    async def meet(slot: Slot, mine: asyncio.Event, theirs: asyncio.Event) -> None:
        running = asyncio.create_task(slot.exec("until [ -e go ]; do sleep 0.02; done"))
        mine.set()
        await theirs.wait()
        await slot.write_file("go", b"")
        expect((await running).exit_code, 0)

    async with factory(warm=0) as backend:
        slots = await asyncio.gather(*(backend.acquire(str(n)) for n in range(3)))
        events = [asyncio.Event() for _ in slots]
        await asyncio.gather(*(meet(slot, events[n], events[n - 1]) for n, slot in enumerate(slots)))


@on_backend
async def stopping_ends_what_is_still_leased(factory: Factory) -> None:
    backend = factory(warm=0)
    await backend.start()
    slot = await backend.acquire("a")
    running = asyncio.create_task(slot.exec("sleep 600"))
    await asyncio.sleep(0.1)
    await backend.stop()
    await backend.stop()
    (ending,) = await asyncio.gather(running, return_exceptions=True)
    require(isinstance(ending, SandboxDied), f"the running command ended with {ending!r}")
    try:
        await backend.acquire("b")
    except SandboxUnavailable:
        return
    raise AssertionError("a stopped backend gave a slot")
