"""Groups from the rollout API: environments in other processes and on other hosts keep them coming."""

import logging
from contextlib import AsyncExitStack
from types import TracebackType

from rollouts.api.client import LeaseEnded, RolloutClient
from trainers.batches import Lease

logger = logging.getLogger(__name__)

LEASE_S = 120.0

LONGEST_UPDATE_S = 600.0
"""Environments go on after this long even if the trainer died while handing weights over."""


class ApiSource:
    """Leases from a rollout API. Leaving it with an exception gives back what was not acknowledged.

    Args:
        client: Opened by the caller.
        lease_s: How long a trainer that died holds its groups; while it lives, leases are renewed.
    """

    def __init__(self, client: RolloutClient, lease_s: float = LEASE_S):
        self._client = client
        self._lease_s = lease_s
        self._held: dict[str, AsyncExitStack] = {}

    async def __aenter__(self) -> "ApiSource":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._held:
            _, stack = self._held.popitem()
            await stack.__aexit__(kind, error, traceback)

    async def lease(self, groups: int) -> Lease:
        """Wait for groups; they stay ours until they are acknowledged."""
        stack = AsyncExitStack()
        batch = await stack.enter_async_context(self._client.batch(groups, lease_s=self._lease_s))
        self._held[batch.lease_id] = stack
        return Lease(batch.lease_id, [leased.group for leased in batch.groups])

    async def ack(self, lease: Lease) -> None:
        """Acknowledge; where the lease has ended, the groups come again and count as repeated."""
        try:
            await self._held.pop(lease.lease_id).aclose()
        except LeaseEnded as error:
            logger.warning("%s", error)

    async def publish(self, policy_version: int, *, updating: bool) -> None:
        """Announce a version; environments make no model calls while it is on its way."""
        await self._client.publish(policy_version, updating_s=LONGEST_UPDATE_S if updating else 0.0)
