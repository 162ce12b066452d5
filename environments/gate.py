"""Holds model calls back while the weights behind the model change.

Calls that were begun go on to their end; the next ones wait. A conversation so continues under the new policy
at a turn's boundary, where its record says which version sampled what. The wait is nobody's fault and counts
toward no limit of the rollout; its sandbox ages meanwhile.
"""

import asyncio


class Gate:
    """Open until it is shut; shared by all rollouts of a run."""

    def __init__(self):
        self._open = asyncio.Event()
        self._open.set()

    def shut(self, shut: bool) -> None:
        """Hold new model calls back, or let them go on."""
        if shut:
            self._open.clear()
        else:
            self._open.set()

    async def wait(self) -> None:
        """Wait until model calls are let through."""
        while not self._open.is_set():  # it may be shut again before a waiter runs
            await self._open.wait()

    async def pass_within(self, deadline: asyncio.Timeout) -> None:
        """Wait likewise, with the clock of a running ``asyncio.timeout`` stopped."""
        if self._open.is_set():
            return
        clock = asyncio.get_running_loop().time
        due, began = deadline.when(), clock()
        deadline.reschedule(None)
        await self.wait()
        if due is not None:
            deadline.reschedule(due + clock() - began)
