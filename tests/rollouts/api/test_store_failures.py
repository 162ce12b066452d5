"""Full disks, Redis servers that go away: a clear refusal, nothing lost, and on it goes afterwards."""

import asyncio
import os
import resource
import sqlite3
import sys
from contextlib import asynccontextmanager

import pytest

from rollouts.api.client import ApiError, RolloutClient
from rollouts.api.group_commit import GroupCommit
from rollouts.api.group_queue import GroupQueue, QueueLimits
from rollouts.api.group_store import StoreUnavailable
from rollouts.api.redis_store import RedisStore
from rollouts.api.server import running_server
from rollouts.api.sqlite_store import SqliteStore
from tests.rollouts.api.groups import group_of, new_group
from tests.rollouts.api.redis_part import free_port, redis_server
from tests.rollouts.api.serving import ROOT, config_in
from trajectories.errors import ConfigError


@asynccontextmanager
async def queue_over(store):
    await store.open()
    try:
        queue = GroupQueue(store, QueueLimits(100, None))
        await queue.open()
        yield queue
    finally:
        await store.close()


async def keys_of(queue, lease_id="all"):
    lease = await queue.lease(lease_id, list, 60)
    return [body.decode() for body in await queue.bodies(lease)] if lease else []


class CutOff(SqliteStore):
    """A store of which one call fails, after it took effect or before."""

    fails = ""
    with_effect = False

    async def _maybe(self, name, call):
        fails, self.fails = self.fails == name, "" if self.fails == name else self.fails
        result = await call if self.with_effect or not fails else call.close()
        if fails:
            raise StoreUnavailable("cut off")
        return result

    async def append(self, group):
        return await self._maybe("append", super().append(group))

    async def record_lease(self, seqs, lease_id, expires_at):
        await self._maybe("record_lease", super().record_lease(seqs, lease_id, expires_at))

    async def finish(self, seqs, outcome):
        await self._maybe("finish", super().finish(seqs, outcome))


@pytest.fixture(params=[False, True], ids=["without effect", "with effect"])
def store(request, tmp_path):
    store = CutOff(tmp_path / "q.db")
    store.with_effect = request.param
    return store


async def test_a_push_that_failed_queues_its_group_once_when_it_is_repeated(store):
    async with queue_over(store) as queue:
        store.fails = "append"
        with pytest.raises(StoreUnavailable):
            await queue.push(new_group("a", body=b"a"))
        assert await queue.push(new_group("a", body=b"a"))
        assert not await queue.push(new_group("a", body=b"a"))
        assert await keys_of(queue) == ["a"]


async def test_a_lease_that_failed_is_given_out_when_it_is_asked_for_again(store):
    async with queue_over(store) as queue:
        await queue.push(new_group("a", body=b"a"))
        store.fails = "record_lease"
        with pytest.raises(StoreUnavailable):
            await keys_of(queue, "1")
        assert await keys_of(queue, "1") == ["a"]
        assert await queue.ack("1") == 1


async def test_an_acknowledgement_that_failed_can_be_repeated(store):
    async with queue_over(store) as queue:
        await queue.push(new_group("a", body=b"a"))
        assert await keys_of(queue, "1") == ["a"]
        store.fails = "finish"
        with pytest.raises(StoreUnavailable):
            await queue.ack("1")
        assert await queue.ack("1") == 1
        assert await keys_of(queue) == [] and queue.size_bytes == 0


async def test_a_group_that_left_in_a_failed_acknowledgement_holds_up_no_other(store):
    async with queue_over(store) as queue:
        for key in "ab":
            await queue.push(new_group(key, body=key.encode()))
        await queue.lease("1", lambda waiting: list(waiting[:1]), 60)
        store.fails = "finish"
        with pytest.raises(StoreUnavailable):
            await queue.ack("1")
        await queue.release("1")
        if store.with_effect:
            with pytest.raises(StoreUnavailable, match="left the store"):
                await keys_of(queue, "2")
        assert await keys_of(queue, "3") == (["b"] if store.with_effect else ["a", "b"])


async def test_stale_groups_whose_removal_failed_are_removed_by_the_next(store):
    async with queue_over(store) as queue:
        queue.limits = QueueLimits(100, 0)
        await queue.push(new_group("old", version=1))
        store.fails = "finish"
        with pytest.raises(StoreUnavailable):
            await queue.drop_stale(2)
        assert await queue.drop_stale(2) == 1
        assert (queue.counts.stale, queue.size_bytes) == (1, 0)


def test_work_that_fails_takes_no_other_of_its_transaction_with_it(tmp_path):
    def connect():
        return sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)

    connect().execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    commit = GroupCommit(connect)
    jobs = [commit.submit(lambda db, n=n: db.execute("INSERT INTO t VALUES (?)", (n,))) for n in (1, 2, 1, 3)]
    commit.start()
    commit.stop()
    assert [job.exception() is None for job in jobs] == [True, True, False, True]
    assert [row[0] for row in connect().execute("SELECT n FROM t ORDER BY n")] == [1, 2, 3]


async def test_a_full_disk_is_told_and_once_there_is_space_it_goes_on(tmp_path):
    """A limit on the size of the server's files stands for a disk that is full."""
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rollouts.api", "--port", str(port), "--store", str(tmp_path / "q.db")),
        cwd=ROOT,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with RolloutClient(url, give_up_after_s=120) as client:
            env_id = (await client.register("test")).env_id
            await client.push(env_id, group_of("before"))
            full = (tmp_path / "q.db-wal").stat().st_size
            _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (full, hard))
            async with RolloutClient(url, give_up_after_s=0) as impatient:
                with pytest.raises(ApiError, match="store can't be used") as refused:
                    await impatient.push(env_id, group_of("after"))
                assert refused.value.status == 503
                assert (await impatient.status()).waiting == 1
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
            assert await client.push(env_id, group_of("after"))
            batch = await client.lease(2, wait_s=0)
            assert batch is not None
            assert [leased.group.key for leased in batch.groups] == ["before", "after"]
            await client.ack(batch)
    finally:
        server.kill()
        await server.wait()


async def test_a_file_that_is_no_queue_is_a_clear_error_and_is_not_held(tmp_path):
    path = tmp_path / "q.db"
    path.write_bytes(b"SQLite format 3\0" + os.urandom(8000))
    for _ in range(2):
        with pytest.raises(ConfigError, match="store"):
            async with running_server(config_in(tmp_path, store=str(path))):
                pass


async def test_a_second_server_is_refused_by_whatever_name_it_knows_the_file(tmp_path):
    store = SqliteStore(tmp_path / "q.db")
    await store.open()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.db").symlink_to(tmp_path / "q.db")
    with pytest.raises(ConfigError, match="another server"):
        await SqliteStore(tmp_path / "elsewhere" / "link.db").open()
    await store.close()


async def test_redis_may_be_killed_and_come_back(tmp_path):
    async with redis_server(tmp_path) as port:
        store = RedisStore(f"redis://127.0.0.1:{port}/0", owner_s=1.0)
        await store.open()
        queue = GroupQueue(store, QueueLimits(100, None))
        await queue.open()
        await queue.push(new_group("a", body=b"a"))
        await queue.lease("1", list, 60)
    for call in (queue.push(new_group("b", body=b"b")), queue.ack("1"), store.load()):
        with pytest.raises(StoreUnavailable):
            await call
    await asyncio.sleep(1.2)  # what Redis remembers of the hold runs out meanwhile
    async with redis_server(tmp_path, port=port):
        assert await queue.ack("1") == 1
        assert await queue.push(new_group("b", body=b"b"))
        assert await keys_of(queue, "2") == ["b"]
    await store.close()


async def test_a_server_that_was_away_writes_nothing_once_another_has_had_its_redis(tmp_path):
    async with redis_server(tmp_path) as port:
        url = f"redis://127.0.0.1:{port}/0"
        frozen = RedisStore(url, owner_s=0.5)
        await frozen.open()
        assert frozen._renewing is not None
        frozen._renewing.cancel()  # as in a process that is stopped
        other = RedisStore(url, owner_s=0.5)
        await other.open()
        await other.close()
        with pytest.raises(StoreUnavailable, match="another server"):
            await frozen.append(new_group("a"))
        assert await frozen.load() == []
        await frozen.close()


@asynccontextmanager
async def losing_answers(port):
    """A connection to a server whose next answer can be lost on its way; gives port and the switch."""
    lose = asyncio.Event()
    tasks = set()

    async def pump(source, target, back):
        while data := await source.read(2**16):
            if back and lose.is_set():
                lose.clear()
                break
            target.write(data)
        target.close()

    async def connected(reader, writer):
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        tasks.add(asyncio.gather(pump(reader, to_writer, False), pump(to_reader, writer, True)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], lose


async def test_answers_of_redis_that_are_lost_lose_no_group_and_queue_none_twice(tmp_path):
    async with (
        redis_server(tmp_path) as real,
        losing_answers(real) as (port, lose),
        queue_over(RedisStore(f"redis://127.0.0.1:{port}/0", owner_s=600)) as queue,
    ):

        async def repeated(call):
            lose.set()
            with pytest.raises(StoreUnavailable):
                await call()
            assert not lose.is_set()
            return await call()

        assert await repeated(lambda: queue.push(new_group("a", body=b"a")))
        lease = await repeated(lambda: queue.lease("1", list, 60))
        assert [body.decode() for body in await queue.bodies(lease)] == ["a"]
        assert await repeated(lambda: queue.ack("1")) == 1
        assert await keys_of(queue) == []
