"""The queue: FIFO, leases, staleness, room; against a model under random use."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.api.group_queue import GroupQueue, QueueFull, QueueLimits
from rollouts.api.sqlite_store import SqliteStore
from tests.rollouts.api.groups import new_group


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def opened(path, clock, *, max_groups=100, max_staleness=None) -> tuple[GroupQueue, SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    queue = GroupQueue(store, QueueLimits(max_groups, max_staleness), clock)
    await queue.open()
    return queue, store


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def queue(tmp_path, clock):
    queue, store = await opened(tmp_path / "q.db", clock, max_groups=5, max_staleness=2)
    yield queue
    await store.close()


def oldest(count: int):
    def choose(waiting: Sequence):
        return list(waiting[:count]) if len(waiting) >= count else None

    return choose


async def fill(queue, *keys, version=0):
    for key in keys:
        assert await queue.push(new_group(key, body=key.encode(), version=version))


async def taken(queue, lease_id, count=1, lease_s=10.0):
    lease = await queue.lease(lease_id, oldest(count), lease_s)
    return [body.decode() for body in await queue.bodies(lease)] if lease else None


async def test_groups_leave_in_order_of_arrival(queue):
    await fill(queue, "a", "b", "c")
    assert await taken(queue, "1", 2) == ["a", "b"]
    assert await taken(queue, "2", 2) is None
    assert await taken(queue, "3", 1) == ["c"]


async def test_an_expired_lease_gives_its_groups_back_in_their_old_place_and_marked(queue, clock):
    await fill(queue, "a", "b", "c")
    await taken(queue, "1", 2)
    clock.now += 11
    lease = await queue.lease("2", oldest(3), 10)
    assert lease is not None
    assert [g.deliveries for g in lease.groups] == [2, 2, 1]
    assert await queue.ack("1") == 0
    assert await queue.ack("2") == 3
    assert queue.counts.redelivered == 2 and queue.counts.leases_expired == 1


async def test_asking_again_for_a_lease_gives_the_same_groups_and_counts_one_delivery(queue):
    await fill(queue, "a", "b")
    assert await taken(queue, "1") == await taken(queue, "1") == ["a"]
    assert queue.counts.delivered == 1


async def test_acknowledging_again_says_the_same(queue):
    await fill(queue, "a")
    await taken(queue, "1")
    assert await queue.ack("1") == await queue.ack("1") == 1
    assert queue.counts.acked == 1


async def test_acknowledging_again_before_the_first_time_is_on_the_disk_says_the_same(tmp_path, clock):
    written = asyncio.Event()

    class Slow(SqliteStore):
        async def finish(self, seqs, outcome):
            await written.wait()
            await super().finish(seqs, outcome)

    store = Slow(tmp_path / "slow.db")
    await store.open()
    queue = GroupQueue(store, QueueLimits(5, None), clock)
    await fill(queue, "a")
    await taken(queue, "1")
    acks = [asyncio.ensure_future(queue.ack("1")) for _ in range(2)]
    await asyncio.wait(acks, timeout=0.1)
    clock.now += 100  # the lease's end is no end while it is acknowledged
    assert await taken(queue, "2") is None
    written.set()
    assert await asyncio.gather(*acks) == [1, 1]
    assert queue.counts.acked == 1
    await store.close()


async def test_a_lease_can_be_extended_and_released(queue, clock):
    await fill(queue, "a")
    await taken(queue, "1", lease_s=10)
    clock.now += 8
    assert await queue.extend("1", 10)
    clock.now += 8
    assert await taken(queue, "2") is None
    assert await queue.release("1")
    assert await taken(queue, "2") == ["a"]
    assert not await queue.extend("1", 10) and not await queue.release("1")


async def test_a_full_queue_takes_no_more_and_leased_groups_count(queue):
    await fill(queue, *"abcde")
    await taken(queue, "1", 2)
    with pytest.raises(QueueFull):
        await queue.push(new_group("f"))
    await queue.ack("1")
    await fill(queue, "f", "g")


async def test_pushes_in_progress_count_against_a_full_queue(queue):
    results = await asyncio.gather(
        *(queue.push(new_group(f"g{n}")) for n in range(9)), return_exceptions=True
    )
    assert results.count(True) == 5
    assert sum(isinstance(result, QueueFull) for result in results) == 4


async def test_groups_too_far_behind_the_policy_are_dropped_and_counted(queue):
    await fill(queue, "old", version=1)
    await fill(queue, "new", version=2)
    assert await queue.drop_stale(4) == 1
    assert await taken(queue, "1") == ["new"]
    assert queue.counts.stale == 1


async def test_a_leased_group_that_comes_back_stale_is_not_handed_out_again(queue, clock):
    await fill(queue, "a", version=0)
    await taken(queue, "1")
    await queue.drop_stale(3)
    clock.now += 11
    assert await taken(queue, "2") is None
    assert queue.counts.stale == 1


async def test_waiting_ends_when_a_group_arrives_or_a_lease_ends(queue, clock):
    waiter = asyncio.ensure_future(queue.changed())
    await asyncio.sleep(0)
    await fill(queue, "a")
    await asyncio.wait_for(waiter, 60)
    await taken(queue, "1", lease_s=0.01)
    clock.now += 1
    await asyncio.wait_for(queue.changed(), 60)
    assert len(queue.waiting) == 1


operations = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 12)),
        st.tuples(st.just("lease"), st.integers(1, 3)),
        st.tuples(st.just("ack"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(1, 15)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(operations)
def test_no_group_is_lost_or_handed_out_unmarked_under_any_use(tmp_path_factory, steps):
    asyncio.run(_use(tmp_path_factory.mktemp("queue") / "q.db", steps))


async def _use(path, steps):
    """A model of dictionaries beside the queue: same groups, same deliveries, through restarts."""
    clock = Clock()
    queue, store = await opened(path, clock)
    pushed: set[str] = set()
    acked: set[str] = set()
    delivered: dict[str, int] = {}
    leases: dict[str, list[str]] = {}
    for number, (step, value) in enumerate(steps):
        lease_id = f"lease-{value}"
        if step == "push":
            assert await queue.push(new_group(f"g{value}", body=f"g{value}".encode())) == (
                f"g{value}" not in pushed
            )
            pushed.add(f"g{value}")
        elif step == "lease":
            lease_id = f"lease-{number}"
            lease = await queue.lease(lease_id, oldest(value), 10)
            for group, body in zip(lease.groups, await queue.bodies(lease), strict=True) if lease else ():
                key = body.decode()
                assert key not in acked
                delivered[key] = delivered.get(key, 0) + 1
                assert group.deliveries == delivered[key]
                leases.setdefault(lease_id, []).append(key)
        elif step == "ack" and leases:
            lease_id = list(leases)[value % len(leases)]
            if await queue.ack(lease_id):
                acked |= set(leases[lease_id])
        elif step == "release" and leases:
            await queue.release(list(leases)[value % len(leases)])
        elif step == "wait":
            clock.now += value
        elif step == "restart":
            await store.close()
            queue, store = await opened(path, clock)
    clock.now += 1000
    rest = await queue.lease("last", lambda waiting: list(waiting), 10)
    left = {body.decode() for body in await queue.bodies(rest)} if rest else set()
    assert left == pushed - acked
    await store.close()
