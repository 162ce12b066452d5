"""New weights for running vLLM servers, by the development routes of vLLM (``VLLM_SERVER_DEV_MODE=1``).

Requests that run finish under the version they began with, so each output has one version; those that come
meanwhile wait and run under the next. A server whose hand-over failed stays paused: what it would sample
could not be told from either version.

vLLM 0.32 on a CPU packs the output head at start and, where it is tied to the embeddings, never again: it
would go on sampling with the old head. There, serve an untied copy (``scripts/untie_embeddings.py``).
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from trajectories.errors import ConfigError, ModelError


class VllmWeights:
    """Hands weights to equal vLLM servers that see the same file system.

    Args:
        urls: Base URLs.
        api_key: Bearer token, if the servers want one.
        timeout_s: Deadline of one step of a hand-over; running requests finish within it.
    """

    def __init__(self, urls: Sequence[str], *, api_key: str | None = None, timeout_s: float = 600.0):
        self._urls = [url.rstrip("/") for url in urls]
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def update_weights(self, weights: Path, version: str) -> None:
        """Sample with the weights of a Hugging Face folder from now on, under the name ``version``.

        The folder may be removed afterwards.

        Raises:
            ConfigError: A server has no development routes.
            ModelError: A server failed; it may be left paused.
        """
        folder = str(Path.cwd() / weights)
        async with aiohttp.ClientSession(headers=self._headers, timeout=self._timeout) as http:
            await asyncio.gather(*(_hand_over(http, url, folder, version) for url in self._urls))


async def _hand_over(http: aiohttp.ClientSession, url: str, folder: str, version: str) -> None:
    await _post(http, f"{url}/pause", params={"mode": "wait"})
    reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
    await _post(http, f"{url}/collective_rpc", body=reload)
    cleared = await _post(http, f"{url}/reset_prefix_cache")
    if cleared.get("success") is False:
        raise ModelError(f"{url} kept its prefix cache, which holds keys and values of the old weights")
    await _post(http, f"{url}/update_weight_version", body={"new_version": version})
    await _post(http, f"{url}/resume")


async def _post(
    http: aiohttp.ClientSession, url: str, *, params: dict[str, str] | None = None, body: Any = None
) -> dict[str, Any]:
    try:
        async with http.post(url, params=params, json=body) as answer:
            text = await answer.text()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ModelError(f"weight hand-over: {url}: {error or type(error).__name__}") from error
    if answer.status == 404:
        raise ConfigError(f"{url} does not exist: start vLLM with VLLM_SERVER_DEV_MODE=1")
    if answer.status >= 400:
        raise ModelError(f"weight hand-over: {url} answered HTTP {answer.status}: {text[:500]}")
    return json.loads(text) if text.strip() else {}
