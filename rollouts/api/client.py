"""A client of the rollout API, for environments and trainers.

Every call may be repeated without harm (pushes carry a key, leases an id of the client's choice), so each is
retried through restarts of the server until it is answered or its time is up.
"""

import asyncio
import io
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp
import msgspec

from inference.backoff import backoff_s
from rollouts.api.scored_group import ScoredGroup
from rollouts.api.wire import (
    BatchMessage,
    BatchRequest,
    Extension,
    Heartbeat,
    LeaseAnswer,
    Orders,
    PolicyMessage,
    Pushed,
    Registered,
    Registration,
    Status,
)
from trajectories.errors import ConfigError, LachesisError

T = TypeVar("T")

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 5.0
"""Between attempts at a call."""
RETRIED = (429, 500, 502, 503, 504)


class ApiError(LachesisError):
    """The server refused a call, or could not be reached in time."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status
        """HTTP status of the refusal; None where there was no answer."""


class LeaseEnded(ApiError):
    """The lease of a batch ran out: its groups were or will be handed out again."""


@dataclass(frozen=True, slots=True)
class LeasedGroup:
    """A group as a trainer gets it."""

    group: ScoredGroup
    deliveries: int
    """1 for the first time; more where it was handed out before and never acknowledged, so that a trainer
    that died after its step can tell what it may have trained on already."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups that are this trainer's until the lease ends."""

    lease_id: str
    groups: list[LeasedGroup]


class RolloutClient:
    """One connection pool to one server; safe to share between tasks. Use it in an ``async with``."""

    def __init__(self, url: str, token: str | None = None, *, give_up_after_s: float = 600.0):
        """Remember where the server is; nothing is sent yet.

        Args:
            url: Base URL of the server.
            token: The server's token, if it has one.
            give_up_after_s: A call that was not answered for so long raises.
        """
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._give_up_after_s = give_up_after_s
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "RolloutClient":
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
        self._http = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def register(
        self,
        name: str,
        *,
        instance: str | None = None,
        weight: float = 1.0,
        min_allocation: float | None = None,
        group_size: int = 1,
    ) -> Registered:
        """Register an environment; the same ``instance`` gets the same id again."""
        message = Registration(name, instance, weight, min_allocation, group_size)
        return await self._json("POST", "/v1/environments", Registered, message)

    async def leave(self, env_id: int) -> None:
        """Tell that an environment goes for good."""
        await self._call("DELETE", f"/v1/environments/{env_id}")

    async def heartbeat(self, env_id: int, in_flight: int) -> Orders:
        """Give a sign of life; returns what the server wants."""
        return await self._json("POST", f"/v1/environments/{env_id}/heartbeat", Orders, Heartbeat(in_flight))

    async def push(self, env_id: int, group: ScoredGroup) -> bool:
        """Push a group; it is on the server's disk once this returns. False where it was pushed before.

        Raises:
            ApiError: The group is malformed, the environment not registered, or the server gone for too long.
        """
        body = msgspec.msgpack.encode(group)
        answer = await self._call("POST", f"/v1/groups?env_id={env_id}", body, "application/msgpack")
        return msgspec.json.decode(answer, type=Pushed).accepted

    async def lease(self, groups: int, *, lease_s: float = 600.0, wait_s: float = 30.0) -> Batch | None:
        """Take exactly ``groups`` groups; None where there are fewer after ``wait_s`` seconds.

        They are handed out again after ``lease_s`` seconds unless they are acknowledged by then.
        """
        message = BatchRequest(uuid.uuid4().hex, groups, lease_s, min(wait_s, 60.0))
        answer = await self._call("POST", "/v1/batches", msgspec.json.encode(message))
        if not answer:
            return None
        batch = msgspec.msgpack.decode(answer, type=BatchMessage)
        return Batch(
            batch.lease_id,
            [
                LeasedGroup(
                    replace(
                        msgspec.msgpack.decode(delivery.group, type=ScoredGroup),
                        policy_version=delivery.policy_version,
                    ),
                    delivery.deliveries,
                )
                for delivery in batch.groups
            ],
        )

    async def ack(self, batch: Batch) -> None:
        """Take the batch's groups out of the queue for good.

        Raises:
            LeaseEnded: Too late; they were or will be handed out again.
        """
        await self._json("POST", f"/v1/batches/{batch.lease_id}/ack", LeaseAnswer)

    async def extend(self, batch: Batch, lease_s: float) -> None:
        """Keep the batch for another ``lease_s`` seconds from now.

        Raises:
            LeaseEnded: Too late.
        """
        await self._json("POST", f"/v1/batches/{batch.lease_id}/extend", LeaseAnswer, Extension(lease_s))

    async def release(self, batch: Batch) -> None:
        """Give the batch back untrained.

        Raises:
            LeaseEnded: It was taken back already.
        """
        await self._json("POST", f"/v1/batches/{batch.lease_id}/release", LeaseAnswer)

    @asynccontextmanager
    async def batch(self, groups: int, *, lease_s: float = 60.0) -> AsyncIterator[Batch]:
        """Wait for a batch and hold it for the block: acknowledged at its end, given back if it raises.

        The lease is renewed meanwhile, so ``lease_s`` is only how long a dead trainer holds its groups.
        """
        taken = None
        while taken is None:
            taken = await self.lease(groups, lease_s=lease_s)
        renewing = asyncio.create_task(self._renew(taken, lease_s))
        try:
            yield taken
        except BaseException:
            with suppress(ApiError):  # what went wrong in the block is what the caller needs to know
                await asyncio.shield(self.release(taken))
            raise
        finally:
            renewing.cancel()
        await self.ack(taken)

    async def publish(self, version: int, *, updating_s: float = 0.0) -> None:
        """Tell environments the policy version.

        Args:
            version: Version of the weights that sample from now on.
            updating_s: Most seconds until they are in place: environments pause until this is called again
                without it, or the time is up.
        """
        await self._call("PUT", "/v1/policy", msgspec.json.encode(PolicyMessage(version, updating_s)))

    async def status(self) -> Status:
        """Return the queue at a glance."""
        return await self._json("GET", "/v1/status", Status)

    async def _renew(self, batch: Batch, lease_s: float) -> None:
        while True:
            await asyncio.sleep(lease_s / 3)
            try:
                await self.extend(batch, lease_s)
            except ApiError as error:
                logger.warning("batch %s can't be held any longer: %s", batch.lease_id, error)
                return

    async def _json(self, method: str, path: str, answer: type[T], message: Any = None) -> T:
        body = None if message is None else msgspec.json.encode(message)
        return msgspec.json.decode(await self._call(method, path, body), type=answer)

    async def _call(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> bytes:
        """Send until it is answered; the answer's body."""
        headers = {"Content-Type": content_type} if body is not None else {}
        gives_up_at = asyncio.get_running_loop().time() + self._give_up_after_s
        attempt = 1
        while True:
            status, answer = await self._once(method, path, body, headers)
            if status is not None and status < 400:
                return answer
            if status is not None and status not in RETRIED:
                kind = LeaseEnded if status == 410 else ApiError
                raise kind(f"{method} {self.url}{path}: {status}: {_detail(answer)}", status)
            problem = f"{method} {self.url}{path}: {status or 'no answer'}: {_detail(answer)}"
            if asyncio.get_running_loop().time() >= gives_up_at:
                raise ApiError(problem, status)
            if attempt == 1 and status != HTTPStatus.TOO_MANY_REQUESTS:
                logger.warning("%s; trying again until it is answered", problem)
            await asyncio.sleep(backoff_s(attempt, LONGEST_PAUSE_S))
            attempt += 1

    async def _once(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int | None, bytes]:
        assert self._http is not None, "use the client in an async with statement"
        data = None if body is None else io.BytesIO(body)  # sent in pieces: the event loop goes on meanwhile
        try:
            async with self._http.request(method, self.url + path, data=data, headers=headers) as response:
                return response.status, await response.read()
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise ConfigError(f"rollout API: {self.url} is not an HTTP address") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            return None, (str(error) or type(error).__name__).encode()


def _detail(answer: bytes) -> str:
    try:
        return str(msgspec.json.decode(answer)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer[:200].decode(errors="replace")
