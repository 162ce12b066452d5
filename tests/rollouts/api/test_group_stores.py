"""One suite for every store: what was acknowledged is there after the store is opened anew."""

import asyncio

import pytest

from rollouts.api.redis_store import RedisStore
from rollouts.api.settings import ServerConfig
from rollouts.api.sqlite_store import SqliteStore
from tests.rollouts.api.groups import new_group
from tests.rollouts.api.redis_part import redis_server
from trajectories.errors import ConfigError


class SqliteParts:
    """Opens the same file again and again."""

    def __init__(self, tmp_path):
        self._path = tmp_path / "queue" / "rollouts.db"

    def store(self):
        return SqliteStore(self._path)


class RedisParts:
    """Opens the same database of a real Redis server again and again."""

    def __init__(self, port):
        self.url = f"redis://127.0.0.1:{port}/0"

    def store(self):
        return RedisStore(self.url, owner_s=8.0)


@pytest.fixture(params=["sqlite", "redis"])
async def parts(request, tmp_path):
    if request.param == "sqlite":
        yield SqliteParts(tmp_path)
        return
    async with redis_server(tmp_path) as port:
        yield RedisParts(port)


@pytest.fixture
async def store(parts):
    store = parts.store()
    await store.open()
    yield store
    await store.close()


async def reopened(parts, store):
    await store.close()
    again = parts.store()
    await again.open()
    return again


async def test_groups_come_back_in_order_of_arrival(parts, store):
    seqs = [await store.append(new_group(f"g{n}", rollouts=n + 1, version=n)) for n in range(5)]
    assert seqs == sorted(set(seqs))
    again = await reopened(parts, store)
    loaded = await again.load()
    assert [(g.seq, g.rollouts, g.policy_version) for g in loaded] == [
        (seq, n + 1, n) for n, seq in enumerate(seqs)
    ]
    assert all(g.deliveries == 0 and g.lease_id is None for g in loaded)
    await again.close()


async def test_bodies_are_given_byte_for_byte_in_the_order_asked_for(store):
    bodies = [bytes([n]) * (n * 70_000) for n in range(4)]
    seqs = [await store.append(new_group(f"g{n}", body=body)) for n, body in enumerate(bodies)]
    assert await store.bodies(seqs[::-1]) == bodies[::-1]


async def test_a_key_is_taken_once_even_after_its_group_is_gone(parts, store):
    seq = await store.append(new_group("same"))
    assert await store.append(new_group("same")) == seq
    assert len(await store.load()) == 1
    await store.finish([seq], "acked")
    again = await reopened(parts, store)
    assert await again.append(new_group("same")) is None
    assert await again.load() == []
    await again.close()


async def test_of_equal_keys_pushed_at_once_one_is_kept(store):
    seqs = await asyncio.gather(*(store.append(new_group("same")) for _ in range(20)))
    assert len(set(seqs)) == len(await store.load()) == 1


async def test_many_at_once_all_get_a_number_of_their_own(parts, store):
    seqs = await asyncio.gather(*(store.append(new_group(f"g{n}")) for n in range(600)))
    assert len(set(seqs)) == 600
    again = await reopened(parts, store)
    assert [g.seq for g in await again.load()] == sorted(seqs)
    await again.close()


async def test_leases_and_their_deliveries_outlive_the_server(parts, store):
    first, second = [await store.append(new_group(f"g{n}")) for n in range(2)]
    await store.record_lease([first], "a", 100.0)
    await store.record_lease([first], "b", 200.0)
    await store.move_expiry("b", [first], 300.5)
    await store.move_expiry("a", [first], 0.0)
    again = await reopened(parts, store)
    leased, waiting = await again.load()
    assert (leased.seq, leased.deliveries, leased.lease_id, leased.expires_at) == (first, 2, "b", 300.5)
    assert (waiting.seq, waiting.deliveries, waiting.lease_id) == (second, 0, None)
    await again.close()


async def test_acknowledged_groups_are_counted_by_lease_and_stale_ones_are_not(parts, store):
    seqs = [await store.append(new_group(f"g{n}")) for n in range(4)]
    await store.record_lease(seqs[:3], "a", 100.0)
    await store.finish(seqs[:2], "acked")
    await store.finish([seqs[2]], "stale")
    again = await reopened(parts, store)
    assert await again.acked("a") == 2
    assert await again.acked("b") == 0
    assert [g.seq for g in await again.load()] == [seqs[3]]
    await again.close()


async def test_state_is_kept(parts, store):
    assert await store.get_state("policy") is None
    await store.put_state("policy", b"1")
    await store.put_state("policy", b"2")
    again = await reopened(parts, store)
    assert await again.get_state("policy") == b"2"
    await again.close()


async def test_a_second_server_is_refused_while_the_first_runs(parts, store):
    with pytest.raises(ConfigError, match="another server"):
        await parts.store().open()
    again = await reopened(parts, store)
    await again.close()


async def test_closing_commits_what_was_asked_for(parts, store):
    asked = [asyncio.ensure_future(store.append(new_group(f"g{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    again = await reopened(parts, store)
    assert len(await again.load()) == 50
    assert None not in await asyncio.gather(*asked)
    await again.close()


async def test_a_body_that_is_gone_is_none(store):
    seqs = [await store.append(new_group(f"g{n}", body=b"%d" % n)) for n in range(3)]
    await store.finish([seqs[1]], "acked")
    assert await store.bodies(seqs) == [b"0", None, b"2"]


@pytest.mark.parametrize(
    ("flags", "fix"),
    [
        (["--appendfsync", "everysec"], "appendfsync always"),
        (["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], "noeviction"),
        (["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"], "noeviction"),
    ],
    ids=["late syncs", "eviction", "eviction of keys that expire"],
)
async def test_a_redis_that_may_forget_is_refused(tmp_path, flags, fix):
    async with redis_server(tmp_path, *flags) as port:
        with pytest.raises(ConfigError, match=fix):
            await RedisParts(port).store().open()


async def test_a_redis_that_is_not_there_is_a_clear_error():
    with pytest.raises(ConfigError, match="cannot use") as error:
        await RedisStore("redis://user:secret@127.0.0.1:1/0").open()
    assert "secret" not in str(error.value)


def test_the_password_of_a_redis_is_used_but_not_shown_or_saved():
    config = ServerConfig(store="redis://user:secret@127.0.0.1:1/0")
    assert "secret" in config.store
    assert config.shown_store == "redis://127.0.0.1:1/0"
    assert "secret" not in config.model_dump_json()
