"""The store in Redis: a stream of groups in order of arrival, their bodies beside it.

For servers whose own disk does not outlive them. Redis forgets what it has not synced, so it must append to
its file and sync at every write, or the store does not open. Each change is one transaction or script: whole
or not at all.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any, cast

from rollouts.api.group_store import Form, GroupStore, NewGroup, Outcome, QueuedGroup
from trajectories.errors import ConfigError

logger = logging.getLogger(__name__)

PREFIX = "{lachesis}"
"""Begins every key; the braces keep them on one node of a cluster."""
STREAM = f"{PREFIX}:groups"
"""Entries `seq-0` with what is known of a group except its body."""
LAST_SEQ = f"{PREFIX}:last_seq"
LEASES = f"{PREFIX}:leases"
"""Of a group: when its lease ends and whose it is."""
DELIVERIES = f"{PREFIX}:deliveries"
STATE = f"{PREFIX}:state"
OWNER = f"{PREFIX}:owner"
BODY = f"{PREFIX}:body:"
KEY = f"{PREFIX}:key:"
ACKED = f"{PREFIX}:acked:"

OWNER_S = 15.0
"""A server that died holds the store for so long."""
KEPT_S = 30 * 24 * 3600
"""Keys of groups and acknowledged leases are known for so long."""
PAGE = 1000
CONNECTIONS = 16

APPEND = """
local key, last_seq, stream = KEYS[1], KEYS[2], KEYS[3]
local kept_s, body, body_prefix = ARGV[1], ARGV[2], ARGV[3]
if redis.call('EXISTS', key) == 1 then return 0 end
local seq = redis.call('INCR', last_seq)
redis.call('SET', key, seq, 'EX', kept_s)
redis.call('SET', body_prefix .. seq, body)
redis.call('XADD', stream, seq .. '-0', unpack(ARGV, 4))
return seq
"""

RENEW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
"""

RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisStore(GroupStore):
    """A store in one Redis database."""

    def __init__(self, url: str, *, owner_s: float = OWNER_S):
        """Connect at the first call.

        Args:
            url: Redis URL.
            owner_s: How long this server holds the store without a sign of life.

        Raises:
            ConfigError: The package is missing, or the URL is none.
        """
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
        except ImportError as error:
            raise ConfigError("store: redis URLs need the extra: pip install 'lachesis-rl[redis]'") from error
        try:
            pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None)
            self._redis: Any = Redis.from_pool(pool)
        except ValueError as error:
            raise ConfigError(f"store: {url}: {error}") from error
        self._url = url
        self._owner = uuid.uuid4().hex
        self._owner_s = owner_s
        self._renewing: asyncio.Task[None] | None = None
        self._lost = False
        self._writes: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """Take the database for this server; one that died is waited for.

        Raises:
            ConfigError: It can't be reached, does not sync its writes, or another server has it.
        """
        from redis.exceptions import RedisError

        try:
            settings = await self._redis.config_get("append*")
            if (settings["appendonly"], settings["appendfsync"]) != ("yes", "always"):
                raise ConfigError(
                    f"store: {self._url} may lose what it has acknowledged; "
                    "start Redis with --appendonly yes --appendfsync always"
                )
            await self._take()
        except RedisError as error:
            await self._redis.aclose()
            raise ConfigError(f"store: cannot use {self._url}: {error}") from error
        except BaseException:
            await self._redis.aclose()
            raise
        self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        """Finish what was asked for and give the database back."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
            await asyncio.gather(*self._writes, return_exceptions=True)
            await self._redis.eval(RELEASE, 1, OWNER, self._owner)
        await self._redis.aclose()

    async def load(self) -> list[QueuedGroup]:
        """Read the stream, page by page."""
        leases = await self._redis.hgetall(LEASES)
        deliveries = await self._redis.hgetall(DELIVERIES)
        groups: list[QueuedGroup] = []
        after = "-"
        while page := await self._redis.xrange(STREAM, min=after, count=PAGE):
            groups += [_queued(entry, fields, leases, deliveries) for entry, fields in page]
            after = "(" + page[-1][0].decode()
        return groups

    async def append(self, group: NewGroup) -> int | None:
        """Run the script that appends."""
        fields = {
            "form": group.form,
            "rollouts": group.rollouts,
            "policy_version": group.policy_version,
            "bytes": len(group.body),
        }
        if group.env_id is not None:
            fields["env_id"] = group.env_id
        flat = [part for pair in fields.items() for part in pair]
        keys = (KEY + group.key, LAST_SEQ, STREAM)
        appended = self._redis.eval(APPEND, 3, *keys, KEPT_S, group.body, BODY, *flat)
        return await self._written(appended) or None

    async def record_lease(self, seqs: Sequence[int], lease_id: str, expires_at: float) -> None:
        """Update leases and deliveries."""
        step = self._redis.pipeline(transaction=True)
        for seq in seqs:
            step.hset(LEASES, seq, f"{expires_at!r} {lease_id}")
            step.hincrby(DELIVERIES, seq, 1)
        await self._written(step.execute())

    async def move_expiry(self, seqs: Sequence[int], expires_at: float) -> None:
        """Update leases."""
        held = await self._leases_of(seqs)
        step = self._redis.pipeline(transaction=True)
        for seq, (_, lease_id) in held.items():
            step.hset(LEASES, seq, f"{expires_at!r} {lease_id}")
        await self._written(step.execute())

    async def finish(self, seqs: Sequence[int], outcome: Outcome) -> None:
        """Delete entries and bodies; count what was acknowledged."""
        if not seqs:
            return
        held = await self._leases_of(seqs)
        step = self._redis.pipeline(transaction=True)
        step.xdel(STREAM, *(f"{seq}-0" for seq in seqs))
        step.delete(*(f"{BODY}{seq}" for seq in seqs))
        step.hdel(LEASES, *seqs)
        step.hdel(DELIVERIES, *seqs)
        if outcome == "acked":
            for lease_id, count in Counter(lease_id for _, lease_id in held.values()).items():
                step.incrby(ACKED + lease_id, count)
                step.expire(ACKED + lease_id, KEPT_S)
        await self._written(step.execute())

    async def acked(self, lease_id: str) -> int:
        """Read the count."""
        return int(await self._redis.get(ACKED + lease_id) or 0)

    async def bodies(self, seqs: Sequence[int]) -> list[bytes]:
        """Read the bodies."""
        return await self._redis.mget([f"{BODY}{seq}" for seq in seqs]) if seqs else []

    async def put_state(self, name: str, value: bytes) -> None:
        """Replace the value."""
        await self._written(self._redis.hset(STATE, name, value))

    async def get_state(self, name: str) -> bytes | None:
        """Read the value."""
        return await self._redis.hget(STATE, name)

    async def _leases_of(self, seqs: Sequence[int]) -> dict[int, tuple[float, str]]:
        found = await self._redis.hmget(LEASES, seqs) if seqs else []
        return {seq: _lease(value) for seq, value in zip(seqs, found, strict=True) if value is not None}

    async def _written(self, answer: Awaitable[Any]) -> Any:
        """Wait for a write; a caller that is cancelled meanwhile does not undo it."""
        write = asyncio.ensure_future(self._while_owned(answer))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        return await asyncio.shield(write)

    async def _while_owned(self, answer: Awaitable[Any]) -> Any:
        if self._lost:
            raise ConfigError(f"store: another server has taken {self._url}; stop this one")
        return await answer

    async def _take(self) -> None:
        hold = int(self._owner_s * 1000)
        waits_until = asyncio.get_running_loop().time() + 1.2 * self._owner_s
        while not await self._redis.set(OWNER, self._owner, nx=True, px=hold):
            if asyncio.get_running_loop().time() >= waits_until:
                raise ConfigError(f"store: another server has {self._url}")
            await asyncio.sleep(self._owner_s / 20)

    async def _renew(self) -> None:
        """Keep the store; where another server has taken it meanwhile, write no more."""
        from redis.exceptions import RedisError

        while not self._lost:
            await asyncio.sleep(self._owner_s / 4)
            try:
                held = await self._redis.eval(RENEW, 1, OWNER, self._owner, int(self._owner_s * 1000))
            except (OSError, RedisError) as error:
                logger.warning("cannot renew the hold on %s: %s", self._url, error)
                continue
            self._lost = not held


def _queued(
    entry: bytes, fields: dict[bytes, bytes], leases: dict[bytes, bytes], deliveries: dict[bytes, bytes]
) -> QueuedGroup:
    seq = entry.partition(b"-")[0]
    env_id = fields.get(b"env_id")
    group = QueuedGroup(
        seq=int(seq),
        env_id=None if env_id is None else int(env_id),
        form=cast(Form, fields[b"form"].decode()),
        rollouts=int(fields[b"rollouts"]),
        policy_version=int(fields[b"policy_version"]),
        bytes=int(fields[b"bytes"]),
        deliveries=int(deliveries.get(seq, 0)),
    )
    if seq in leases:
        group.expires_at, group.lease_id = _lease(leases[seq])
    return group


def _lease(value: bytes) -> tuple[float, str]:
    expires_at, _, lease_id = value.decode().partition(" ")
    return float(expires_at), lease_id
