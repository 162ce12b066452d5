"""Atropos' own server as a sink.

That server keeps its queue in memory and knows no keys: what it has acknowledged dies with it, and a push
whose answer was lost is repeated. Use it where a trainer needs it; the native server has neither gap.
"""

import asyncio
import logging
from typing import Any

import aiohttp
import msgspec

from inference.backoff import backoff_s
from rollouts.api.legacy_wire import scored_data
from rollouts.api.scored_group import ScoredGroup
from rollouts.api.wire import Orders

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 5.0
BATCHES_AHEAD = 2
"""Batches the environments keep ready."""
NO_ROOM = Orders(policy_version=0, updating=False, room=0, heartbeat_s=1.0)
"""While the trainer has not started, or the server is away."""


class AtroposSink:
    """Use it in an ``async with``.

    Args:
        url: Base URL of the server.
        name: Name of the environment.
        weight: Share of the sampling; the server multiplies it with ``max_token_length``.
        min_allocation: Least share of a batch, from 0 to 1.
        group_size: Rollouts in a full group.
        max_token_length: Longest sequence; more than 0.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        weight: float,
        min_allocation: float | None,
        group_size: int,
        max_token_length: int = 4096,
    ):
        self._url = url.rstrip("/")
        self._group_size = group_size
        self._registration = {
            "max_token_length": max_token_length,
            "desired_name": name,
            "weight": weight,
            "min_batch_allocation": min_allocation,
            "group_size": group_size,
        }
        self._env_id: int | None = None
        self._batch_size = 0
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "AtroposSink":
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def orders(self, in_flight: int) -> Orders:
        """Ask how long the queue is; no room until the trainer has started."""
        if self._env_id is None:
            answer = await self._send("POST", "/register-env", self._registration)
            if answer["status"] != "success":
                return NO_ROOM
            self._env_id = answer["env_id"]
            self._batch_size = (await self._send("GET", "/info"))["batch_size"]
        try:
            status = await self._once("GET", "/status-env", {"env_id": self._env_id})
        except aiohttp.ClientResponseError as error:
            logger.warning("/status-env: %d; the server was started anew, registering again", error.status)
            self._env_id = None
            return NO_ROOM
        except (aiohttp.ClientError, TimeoutError):
            return NO_ROOM
        wanted = -(-BATCHES_AHEAD * self._batch_size // self._group_size)
        room = max(0, wanted - status["queue_size"])
        return Orders(policy_version=status["current_step"], updating=False, room=room, heartbeat_s=1.0)

    async def push(self, group: ScoredGroup) -> None:
        """Push as scored data."""
        data, left_out = scored_data(group, self._env_id)
        if left_out:
            logger.warning("%s: %d further rows have no place on this wire", group.group_id, left_out)
        await self._send("POST", "/scored_data", data)

    async def leave(self) -> None:
        """Deregister."""
        if self._env_id is not None:
            await self._send("POST", "/disconnect-env", {"env_id": self._env_id})

    async def _send(self, method: str, path: str, message: object = None) -> Any:
        """Send until it is answered; a refusal (4xx) is a fault of ours and raises."""
        attempt = 1
        while True:
            try:
                return await self._once(method, path, message)
            except (aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, aiohttp.ClientResponseError) and error.status < 500:
                    raise
                logger.warning("%s %s: %s; trying again", method, path, error)
                await asyncio.sleep(backoff_s(attempt, LONGEST_PAUSE_S))
                attempt += 1

    async def _once(self, method: str, path: str, message: object = None) -> Any:
        assert self._http is not None, "use the sink in an async with statement"
        body = None if message is None else msgspec.json.encode(message)
        headers = {"Content-Type": "application/json"}
        async with self._http.request(method, self._url + path, data=body, headers=headers) as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read())
