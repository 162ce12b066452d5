"""The store in Redis: a stream of groups in order of arrival, their bodies beside it.

For servers whose own disk does not outlive them. Redis forgets what it has not synced, so it must append to
its file, sync at every write and evict nothing, or the store does not open. Each change is one transaction or
script: whole or not at all.
"""

import asyncio
import logging
import re
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from rollouts.api.group_store import Form, GroupStore, NewGroup, Outcome, QueuedGroup, StoreUnavailable
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
"""Who holds the store; gone where that server died, or where Redis was away for longer than `OWNER_S`."""
OWNERS = f"{PREFIX}:owners"
"""How many servers have held it so far: tells a server whether another one has, meanwhile."""
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
local known = redis.call('GET', key)
if known then return redis.call('EXISTS', body_prefix .. known) == 1 and tonumber(known) or 0 end
local seq = redis.call('INCR', last_seq)
redis.call('SET', key, seq, 'EX', kept_s)
redis.call('SET', body_prefix .. seq, body)
redis.call('XADD', stream, seq .. '-0', unpack(ARGV, 4))
return seq
"""

MOVE_EXPIRY = """
for index = 3, #ARGV do
  local held = redis.call('HGET', KEYS[1], ARGV[index])
  if held and string.match(held, ' (.*)') == ARGV[1] then
    redis.call('HSET', KEYS[1], ARGV[index], ARGV[2] .. ' ' .. ARGV[1])
  end
end
"""

TAKE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end
return 0
"""

RENEW = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] or (not holder and redis.call('GET', KEYS[2]) == ARGV[3]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
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
            raise ConfigError(f"store: {without_password(url)}: {error}") from error
        self._url = without_password(url)
        self._owner = uuid.uuid4().hex
        self._owner_s = owner_s
        self._number = 0
        """Of this server among those that have held the store."""
        self._held_until = 0.0
        """Clock of the event loop; renewed before anything is written after that."""
        self._lost = False
        self._renewing: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """Take the database for this server; one that died is waited for.

        Raises:
            ConfigError: It can't be reached, is not durable, or another server has it.
        """
        from redis.exceptions import RedisError

        try:
            settings = await self._redis.config_get("append*", "maxmemory*")
            if (settings["appendonly"], settings["appendfsync"]) != ("yes", "always"):
                raise ConfigError(
                    f"store: {self._url} may lose what it has acknowledged; "
                    "start Redis with --appendonly yes --appendfsync always"
                )
            if settings["maxmemory"] != "0" and settings["maxmemory-policy"] != "noeviction":
                raise ConfigError(
                    f"store: {self._url} may evict what it has acknowledged; "
                    "start Redis with --maxmemory-policy noeviction"
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
            try:
                await self._answered(self._redis.eval(RELEASE, 1, OWNER, self._owner))
            except StoreUnavailable as error:
                logger.warning("the store is held for another %g s: %s", self._owner_s, error)
        await self._redis.aclose()

    async def load(self) -> list[QueuedGroup]:
        """Read the stream, page by page."""
        leases = await self._answered(self._redis.hgetall(LEASES))
        deliveries = await self._answered(self._redis.hgetall(DELIVERIES))
        groups: list[QueuedGroup] = []
        after = "-"
        while page := await self._answered(self._redis.xrange(STREAM, min=after, count=PAGE)):
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
        seq = await self._written(lambda: self._redis.eval(APPEND, 3, *keys, KEPT_S, group.body, BODY, *flat))
        return seq or None

    async def record_lease(self, seqs: Sequence[int], lease_id: str, expires_at: float) -> None:
        """Update leases and deliveries."""
        step = self._redis.pipeline(transaction=True)
        for seq in seqs:
            step.hset(LEASES, seq, f"{expires_at!r} {lease_id}")
            step.hincrby(DELIVERIES, seq, 1)
        await self._written(step.execute)

    async def move_expiry(self, lease_id: str, seqs: Sequence[int], expires_at: float) -> None:
        """Run the script that updates leases."""
        await self._written(
            lambda: self._redis.eval(MOVE_EXPIRY, 1, LEASES, lease_id, repr(expires_at), *seqs)
        )

    async def finish(self, seqs: Sequence[int], outcome: Outcome) -> None:
        """Delete entries and bodies; count what was acknowledged."""
        if not seqs:
            return
        found = await self._answered(self._redis.hmget(LEASES, seqs))
        held = Counter(_lease(value)[1] for value in found if value is not None)
        step = self._redis.pipeline(transaction=True)
        step.xdel(STREAM, *(f"{seq}-0" for seq in seqs))
        step.delete(*(f"{BODY}{seq}" for seq in seqs))
        step.hdel(LEASES, *seqs)
        step.hdel(DELIVERIES, *seqs)
        if outcome == "acked":
            for lease_id, count in held.items():
                step.incrby(ACKED + lease_id, count)
                step.expire(ACKED + lease_id, KEPT_S)
        await self._written(step.execute)

    async def acked(self, lease_id: str) -> int:
        """Read the count."""
        return int(await self._answered(self._redis.get(ACKED + lease_id)) or 0)

    async def bodies(self, seqs: Sequence[int]) -> list[bytes | None]:
        """Read the bodies."""
        return await self._answered(self._redis.mget([f"{BODY}{seq}" for seq in seqs])) if seqs else []

    async def put_state(self, name: str, value: bytes) -> None:
        """Replace the value."""
        await self._written(lambda: self._redis.hset(STATE, name, value))

    async def get_state(self, name: str) -> bytes | None:
        """Read the value."""
        return await self._answered(self._redis.hget(STATE, name))

    async def _answered(self, answer: Awaitable[Any]) -> Any:
        from redis.exceptions import RedisError

        try:
            return await answer
        except (OSError, RedisError) as error:
            raise StoreUnavailable(f"Redis: {error}") from error

    async def _written(self, write: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a write; a caller that is cancelled meanwhile does not undo it."""
        writing = asyncio.ensure_future(self._write(write))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)
        return await asyncio.shield(writing)

    async def _write(self, write: Callable[[], Awaitable[Any]]) -> Any:
        if asyncio.get_running_loop().time() >= self._held_until:
            await self._hold()
        if self._lost:
            raise StoreUnavailable("another server has taken this one's store; stop this one")
        return await self._answered(write())

    async def _take(self) -> None:
        clock = asyncio.get_running_loop().time
        waits_until = clock() + 1.2 * self._owner_s
        while True:
            asked_at = clock()
            self._number = await self._redis.eval(TAKE, 2, OWNER, OWNERS, self._owner, self._hold_ms)
            if self._number:
                self._held_until = asked_at + self._owner_s
                return
            if asked_at >= waits_until:
                raise ConfigError(f"store: another server has {self._url}")
            await asyncio.sleep(self._owner_s / 20)

    async def _hold(self) -> None:
        """Renew the hold; where another server has had the store meanwhile, nothing is written any more."""
        asked_at = asyncio.get_running_loop().time()
        arguments = (self._owner, self._hold_ms, self._number)
        held = await self._answered(self._redis.eval(RENEW, 2, OWNER, OWNERS, *arguments))
        self._lost = not held
        self._held_until = asked_at + self._owner_s

    async def _renew(self) -> None:
        while not self._lost:
            await asyncio.sleep(self._owner_s / 4)
            try:
                await self._hold()
            except StoreUnavailable as error:
                logger.warning("cannot renew the hold on the store: %s", error)

    @property
    def _hold_ms(self) -> int:
        return int(self._owner_s * 1000)


def without_password(url: str) -> str:
    """Return a URL as it may be shown."""
    return re.sub("//[^/]*@", "//", url)


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
