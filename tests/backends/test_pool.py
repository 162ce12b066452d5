import asyncio
from time import monotonic

import pytest

from backends.local import LocalLimits, LocalMaker
from backends.machine import Machine, OutputLimits
from backends.pool import DEFAULT, Pool, PoolLimits, _Kind
from backends.resources import Resources
from trajectories.errors import CapacityExceeded, SandboxDied, SandboxUnavailable


class Maker(LocalMaker):
    """Makes local sandboxes, watched, slowly or not at all."""

    def __init__(self):
        super().__init__(LocalLimits())
        self.making = self.most = self.made = 0
        self.begun = []
        self.failure = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def make(self, image, resources):
        self.making += 1
        self.begun.append(monotonic())
        self.most = max(self.most, self.making)
        try:
            await self.gate.wait()
            if self.failure:
                raise self.failure
            self.made += 1
            return await super().make(None, resources)
        finally:
            self.making -= 1


def pool_of(maker, **limits):
    return Pool(maker, PoolLimits(**{"warm": 0, **limits}), OutputLimits())


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def test_creation_is_bounded_however_many_ask():
    maker = Maker()
    async with pool_of(maker, max_creating=2) as pool:
        slots = await asyncio.gather(*(pool.acquire(str(n)) for n in range(6)))
        assert maker.most <= 2
        assert len({id(slot.machine) for slot in slots}) == 6


async def test_creations_are_spread_in_time():
    maker, before = Maker(), monotonic()
    async with pool_of(maker, max_created_per_s=10.0) as pool:
        await asyncio.gather(*(pool.acquire(str(n)) for n in range(4)))
    assert len(maker.begun) >= 4
    for number, begun in enumerate(maker.begun):
        assert begun - before >= 0.1 * number - 0.01


async def test_a_failed_creation_reaches_its_caller_and_costs_no_place():
    maker = Maker()
    async with pool_of(maker, max_slots=1) as pool:
        await pool.release(await pool.acquire("uses the first"))
        maker.failure = SandboxUnavailable("the engine is down")
        for _ in range(3):
            with pytest.raises(SandboxUnavailable, match="the engine is down"):
                await pool.acquire("a", timeout_s=60)
        maker.failure = None
        async with pool.acquire("a", timeout_s=60) as slot:
            assert (await slot.exec("echo up again")).stdout == "up again\n"


async def test_a_saturated_pool_with_a_cancelled_waiter_does_not_deadlock():
    maker = Maker()
    async with pool_of(maker, max_slots=1) as pool:
        holder = await pool.acquire("holder")
        waiter = asyncio.create_task(pool._acquire("waiter", DEFAULT, None))
        await asyncio.sleep(0)
        with pytest.raises(CapacityExceeded, match=r"no slot within 0\.05 s; 1 of 1 slots are leased"):
            await pool.acquire("late", timeout_s=0.05)
        waiter.cancel()
        await asyncio.wait({waiter})
        await pool.release(holder)
        await pool.release(await pool.acquire("next", timeout_s=60))


async def test_a_caller_cancelled_while_its_sandbox_is_made_gives_its_place_back():
    maker = Maker()
    async with pool_of(maker, max_slots=1) as pool:
        await pool.release(await pool.acquire("uses the first"))
        maker.gate.clear()
        caller = asyncio.create_task(pool._acquire("a", DEFAULT, None))
        await until(lambda: maker.making)
        caller.cancel()
        await asyncio.wait({caller})
        maker.gate.set()
        await pool.release(await pool.acquire("b", timeout_s=60))


async def test_warm_slots_are_made_ahead_and_replaced():
    maker = Maker()
    async with pool_of(maker, warm=2) as pool:
        await until(lambda: len(pool._warm[DEFAULT]) == 2)
        async with pool.acquire("a"):
            await until(lambda: len(pool._warm[DEFAULT]) == 2)
            assert maker.made == 3
        assert pool.metrics.creating.count == 3


async def test_prefetching_makes_slots_of_an_image_ready():
    maker = Maker()
    async with pool_of(maker) as pool:
        await pool.prefetch("other", 2)
        made = maker.made
        await asyncio.gather(pool.acquire("a", image="other"), pool.acquire("b", image="other"))
        assert (len(pool._leased), maker.made - made <= 2) == (2, True)


async def test_a_warm_slot_serves_only_those_who_want_what_it_may_use():
    maker = Maker()
    async with pool_of(maker) as pool:
        small = Resources(disk_mb=8)
        await pool.prefetch(None, 1, small)
        made = maker.made
        await pool.acquire("a", resources=Resources(disk_mb=9))
        assert maker.made == made + 1
        assert len(pool._warm[_Kind(None, small)]) == 1


async def test_idle_sandboxes_are_discarded():
    async with pool_of(Maker(), max_idle_s=0.2) as pool:
        slot = await pool.acquire("a")
        await pool.release(slot, reset_workspace=False)
        await until(lambda: not pool._kept)
        async with pool.acquire("a") as slot:
            assert (await slot.exec("ls")).stdout == ""


async def test_no_sandbox_outlives_its_greatest_age_leased_or_not():
    async with pool_of(Maker(), warm=1, max_age_s=2, max_slots=1) as pool:
        first = pool._warm[DEFAULT][0].machine
        await until(lambda: first not in [idle.machine for idle in pool._warm[DEFAULT]])
        async with pool.acquire("a") as slot:
            with pytest.raises(SandboxDied, match="max_age_s"):
                await slot.exec("sleep 600")
        async with pool.acquire("a") as slot:
            assert (await slot.exec("echo fresh")).stdout == "fresh\n"


async def test_stopping_while_sandboxes_are_made_ends_them_all():
    maker = Maker()
    pool = pool_of(maker, warm=3)
    await pool.start()
    maker.gate.clear()
    callers = [asyncio.create_task(pool._acquire(str(n), DEFAULT, None)) for n in range(3)]
    await until(lambda: maker.making)
    stopping = asyncio.create_task(pool.stop())
    await asyncio.sleep(0)
    maker.gate.set()
    await stopping
    endings = await asyncio.gather(*callers, return_exceptions=True)
    assert sum(isinstance(ending, SandboxUnavailable) for ending in endings) >= 2
    assert not pool._leased or all(slot._expired for slot in pool._leased)


async def test_a_warm_sandbox_that_a_stop_leaves_unmade_is_no_news(caplog):
    maker = Maker()
    pool = pool_of(maker, warm=2)
    await pool.start()
    maker.gate.clear()
    await until(lambda: maker.making)
    maker.failure = SandboxUnavailable("the engine is gone")
    maker.gate.set()
    await pool.stop()
    assert [record for record in caplog.records if record.name.startswith("backends")] == []


async def test_a_backend_that_was_not_started_says_so():
    with pytest.raises(RuntimeError, match="was not started"):
        await pool_of(Maker()).acquire("a")


async def test_a_reset_that_proves_nothing_is_counted_and_the_sandbox_destroyed():
    maker = Maker()
    async with pool_of(maker, reuse=True) as pool:
        async with pool.acquire("a") as slot:
            await slot.exec("mkdir -p d/e; touch d/e/f; chmod 0 d/e")
        assert (pool.metrics.not_clean, pool.metrics.resetting.count) == (1, 0)
        async with pool.acquire("b") as slot:
            await slot.exec("touch x")
        assert (pool.metrics.not_clean, pool.metrics.resetting.count) == (1, 1)


async def test_a_kept_sandbox_never_stands_in_for_another_image_or_other_resources():
    async with pool_of(Maker(), reuse=True) as pool:
        slot = await pool.acquire("a", image="one")
        await slot.exec("echo one >image")
        await pool.release(slot, reset_workspace=False)
        async with pool.acquire("a", image="two") as other:
            assert (await other.exec("ls")).stdout == ""
        async with pool.acquire("a", image="one", resources=Resources(memory_mb=64)) as smaller:
            assert (await smaller.exec("ls")).stdout == ""
        async with pool.acquire("a", image="one") as again:
            assert (await again.exec("cat image")).stdout == "one\n"


async def test_stopping_waits_for_a_sandbox_that_is_being_cleaned_and_ends_it(monkeypatch):
    clean, reset = asyncio.Event(), Machine.reset

    async def reset_later(machine):
        await clean.wait()
        await reset(machine)

    monkeypatch.setattr(Machine, "reset", reset_later)
    async with pool_of(Maker(), reuse=True) as pool:
        slot = await pool.acquire("a")
        machine = slot.machine
        releasing = asyncio.create_task(pool.release(slot))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.2, clean.set)
    assert releasing.done()
    assert machine.warden.cause is not None


async def test_a_warm_sandbox_that_proves_alive_after_the_pool_has_stopped_is_destroyed(monkeypatch):
    asked, answered, alive = asyncio.Event(), asyncio.Event(), Machine.alive
    machines = []

    async def alive_later(machine):
        machines.append(machine)
        works = await alive(machine)
        asked.set()
        await answered.wait()
        return works

    monkeypatch.setattr(Machine, "alive", alive_later)
    async with pool_of(Maker()) as pool:
        acquiring = asyncio.create_task(pool._acquire("a", DEFAULT, None))
        await asked.wait()
        asyncio.get_running_loop().call_later(0.2, answered.set)
    with pytest.raises(SandboxUnavailable, match="stopped"):
        await acquiring
    assert machines[0].warden.cause is not None


async def test_a_sandbox_that_replaces_a_kept_one_while_the_pool_stops_is_destroyed():
    async with pool_of(Maker()) as pool:
        slots = [await pool.acquire("a") for _ in range(2)]
        machines = [slot.machine for slot in slots]
        await pool.release(slots[0], reset_workspace=False)
        releasing = asyncio.create_task(pool.release(slots[1], reset_workspace=False))
        for _ in range(3):
            await asyncio.sleep(0)
    await releasing
    assert all(machine.warden.cause is not None for machine in machines)
