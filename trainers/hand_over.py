"""How engines get new weights: straight from memory, or through a folder that they read."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainers.policy import Policy


class TakesWeights(Protocol):
    """An engine in this process, such as the embedded one."""

    async def update_weights(self, weights: Mapping[str, Any] | Path, version: str) -> None:
        """Sample with ``weights`` from now on, recorded as ``version``."""
        ...


class TakesFolder(Protocol):
    """Engines that read weights from a folder, such as vLLM servers."""

    async def update_weights(self, weights: Path, version: str) -> None:
        """Sample with the weights in a folder from now on, recorded as ``version``."""
        ...


class HandOver(Protocol):
    """Brings the policy to wherever it is sampled."""

    async def __call__(self, policy: Policy, version: str) -> None:
        """Return once every engine samples with these weights."""
        ...


class InProcess:
    """Hands the weights to an engine in memory."""

    def __init__(self, engine: TakesWeights):
        self._engine = engine

    async def __call__(self, policy: Policy, version: str) -> None:
        """See `HandOver`."""
        await self._engine.update_weights(await asyncio.to_thread(policy.weights), version)


class ThroughFolder:
    """Writes a Hugging Face folder for each version and tells engines to read it; keeps the newest.

    Args:
        folder: Where the versions' folders stand; the engines see it under the same path.
        engines: Told in order.
    """

    def __init__(self, folder: Path, engines: Sequence[TakesFolder]):
        self._folder = folder
        self._engines = engines

    async def __call__(self, policy: Policy, version: str) -> None:
        """See `HandOver`."""
        path = await asyncio.to_thread(self._write, policy, version)
        for engine in self._engines:
            await engine.update_weights(path, version)
        await asyncio.to_thread(self._remove_all_but, path)

    def _write(self, policy: Policy, version: str) -> Path:
        path = self._folder / f"version-{version}"
        unfinished = path.with_suffix(".partial")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        policy.export(unfinished)
        os.rename(unfinished, path)
        return path

    def _remove_all_but(self, path: Path) -> None:
        for other in self._folder.glob("version-*"):
            if other != path:
                shutil.rmtree(other)
