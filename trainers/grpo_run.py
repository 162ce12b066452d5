"""The GRPO loop: groups in, updates, new weights out; safe to kill at any moment.

Groups are acknowledged only once a checkpoint holds what was learned from them. A crash before that gives
them back and undoes what they taught; a crash after it may deliver them again, and the checkpoint knows their
keys. So each group counts once. A policy version names one set of weights for ever: it is written down before
any engine hears of it, and a run that goes on from an older checkpoint takes the next one.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import msgspec

from trainers.batches import Batch, GroupSource, Lease, TrainedGroups, collect
from trainers.checkpoints import Checkpoints
from trainers.grpo import Learner
from trainers.grpo_config import GrpoConfig
from trainers.hand_over import HandOver
from trainers.run_files import MetricsFile, VersionFile, held

T = TypeVar("T")


async def train(config: GrpoConfig, source: GroupSource, hand_over: HandOver) -> Learner:
    """Train until ``config.steps``, from the newest checkpoint where there is one.

    Raises:
        ConfigError: The model or the groups can't be trained on, or another process trains in the folder.
        ModelError: An engine did not take its weights.
    """
    with held(config.output_dir):
        run = await asyncio.to_thread(GrpoRun, config, source, hand_over)
        await run.publish()
        while run.learner.step < config.steps:
            await run.take_step()
        return run.learner


class GrpoRun:
    """A run's learner and its files."""

    def __init__(self, config: GrpoConfig, source: GroupSource, hand_over: HandOver):
        self._config = config
        self._source = source
        self._hand_over = hand_over
        self._checkpoints = Checkpoints(config.output_dir / "checkpoints", config.keep_checkpoints)
        self._versions = VersionFile(config.output_dir / "policy_version")
        saved = self._checkpoints.latest()
        self.learner = Learner(config, saved)
        self._trained = TrainedGroups(_read_keys(saved) if saved else ())
        self._metrics = MetricsFile(config.output_dir / "metrics.jsonl", self.learner.step)
        self._held: list[Lease] = []
        self._version = 0
        # Freed memory stays with the thread that freed it: among several, each would keep an update's worth.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="learner")

    async def publish(self) -> None:
        """Give the engines the learner's weights under a version of their own."""
        self._version = self._versions.next()
        await self._source.publish(self._version, updating=True)
        await self._hand_over(self.learner.policy, str(self._version))
        await self._source.publish(self._version, updating=False)

    async def take_step(self) -> None:
        """Collect a batch, train on it, make it durable, hand the weights over."""
        started = time.perf_counter()
        batch, leases = await collect(self._source, self._config, self._version, self._trained)
        self._held += leases
        collected = time.perf_counter()
        update = await self._in_thread(self.learner.update, batch.rows) if batch.rows else None
        self.learner.step += 1
        self._trained.add(batch.keys)
        updated = time.perf_counter()
        sampled_version = self._version
        if self.learner.step % self._config.checkpoint_every == 0 or self.learner.step == self._config.steps:
            await self._checkpoint()
        if update is not None:
            await self.publish()
        self._metrics.append(
            {
                "step": self.learner.step,
                "policy_version": sampled_version,
                **_of_batch(batch),
                **(asdict(update) if update else {}),
                "collect_s": collected - started,
                "update_s": updated - collected,
                "publish_s": time.perf_counter() - updated,
            }
        )

    async def _checkpoint(self) -> None:
        def write(folder: Path) -> None:
            self.learner.save(folder)
            (folder / "trained.json").write_bytes(msgspec.json.encode(self._trained.to_list()))

        await self._in_thread(self._checkpoints.save, self.learner.step, write)
        while self._held:
            await self._source.ack(self._held[0])
            self._held.pop(0)

    def _in_thread(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _read_keys(checkpoint: Path) -> list[str]:
    return msgspec.json.decode((checkpoint / "trained.json").read_bytes(), type=list[str])


def _of_batch(batch: Batch) -> dict[str, Any]:
    return {
        "reward": fmean(batch.rewards) if batch.rewards else None,
        "rollouts": len(batch.rewards),
        "groups": batch.groups,
        "zero_variance_groups": batch.zero_variance,
        "stale_groups": batch.stale,
        "repeated_groups": batch.repeated,
        "unversioned_groups": batch.unversioned,
        "staleness_mean": fmean(batch.staleness) if batch.staleness else None,
        "staleness_max": max(batch.staleness, default=None),
    }
