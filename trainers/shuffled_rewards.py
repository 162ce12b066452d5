"""The control of a training run: the same rewards, given to the wrong rollouts.

Everything else stays as it is: tokens, group sizes, how many groups differ in reward, the sizes of the
advantages. What still improves does not improve because of the reward.
"""

import random
from dataclasses import replace

from trainers.batches import GroupSource, Lease


class ShuffledRewards:
    """A source whose groups have their rewards permuted among their rollouts."""

    def __init__(self, source: GroupSource, seed: int):
        self._source = source
        self._seed = seed

    async def lease(self, groups: int) -> Lease:
        """See `GroupSource.lease`; a group that is delivered twice is permuted alike."""
        lease = await self._source.lease(groups)
        shuffled = []
        for group in lease.groups:
            rewards = [rollout.reward for rollout in group.rollouts]
            random.Random(f"{self._seed}/{group.key}").shuffle(rewards)
            rollouts = [
                replace(rollout, reward=reward)
                for rollout, reward in zip(group.rollouts, rewards, strict=True)
            ]
            shuffled.append(replace(group, rollouts=rollouts))
        return replace(lease, groups=shuffled)

    async def ack(self, lease: Lease) -> None:
        """See `GroupSource.ack`."""
        await self._source.ack(lease)

    async def publish(self, policy_version: int, *, updating: bool) -> None:
        """See `GroupSource.publish`."""
        await self._source.publish(policy_version, updating=updating)
