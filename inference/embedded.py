"""The embedded engine: a transformers model in this process, so that no server is needed.

Ids go in and ids with their raw logprobs come out, as from a server: log-softmax of the unscaled float32
logits. Sampling with a seed repeats itself, up to ties that floating-point rounding breaks differently when a
request shares its passes with others.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from inference.embedded_scheduler import PIECE_TOKENS, Job, Request, Scheduler
from inference.engine import Generation
from inference.kv_cache import KVRow
from inference.packed_model import PackedModel, Piece
from trajectories.errors import ConfigError, ContextOverflow
from trajectories.turn import LogprobsKind, SamplingParams


class EmbeddedEngine:
    """A Hugging Face model folder as an `Engine`.

    Args:
        folder: The model; ``scripts/fetch_model.py`` prints one.
        device: A torch device, such as ``cpu`` or ``cuda:0``.
        dtype: Of the weights. float32 is twice as fast as bfloat16 on a CPU without bfloat16 instructions.
        max_batch: Most requests computed together; more wait.
        cache_tokens: Most ids whose keys and values are kept for later prompts that begin alike; those of
            SmolLM2-135M take 46 kB an id.
        policy_version: Name of the weights in ``folder``.
        threads: Of the computation; by default all cores but one. OpenMP's threads wait for each other
            spinning, so taking the last core too makes a pass many times slower as soon as anything else
            runs: the event loop, tools, sandboxes.
    """

    logprobs_kind: LogprobsKind = "raw"

    def __init__(
        self,
        folder: Path | str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        max_batch: int = 64,
        cache_tokens: int = 32_768,
        policy_version: str = "0",
        threads: int | None = None,
    ):
        self._folder = Path(folder)
        self._device = device
        self._dtype = dtype
        self._max_batch = max_batch
        self._cache_tokens = cache_tokens
        self._first_version = policy_version
        self._threads = threads or max(1, (os.cpu_count() or 2) - 1)
        self._name = self._folder.name
        self._loaded: tuple[PackedModel, Scheduler] | None = None

    @property
    def model(self) -> str:
        """Folder name, followed by ``@`` and the hash of the weights where the folder records one."""
        return self._name

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and output may have together."""
        return self._started()[0].context_length

    @property
    def policy_version(self) -> str:
        """Name of the weights that sample now."""
        return self._started()[1].policy_version

    async def start(self) -> None:
        """Load the model; see `Engine.start`."""
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(self._load)

    def _load(self) -> tuple[PackedModel, Scheduler]:
        model = PackedModel(self._folder, device=self._device, dtype=self._dtype)
        self._name = _recorded_name(self._folder)
        scheduler = Scheduler(
            model,
            max_batch=self._max_batch,
            cache_tokens=self._cache_tokens,
            decode=lambda ids: str(self._tokenizer.decode(ids)),
            policy_version=self._first_version,
            threads=self._threads,
        )
        return model, scheduler

    async def close(self) -> None:
        """Stop the thread and free the model."""
        if self._loaded is not None:
            (_, scheduler), self._loaded = self._loaded, None
            await asyncio.to_thread(scheduler.close)

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session_id: str,
        stop_ids: Sequence[int] = (),
    ) -> Generation:
        """Sample a continuation; see `Engine.generate`.

        Keys and values are found again by the ids they belong to, so ``session_id`` isn't needed.

        Raises:
            ContextOverflow: The prompt leaves no room for one id.
        """
        model, scheduler = self._started()
        room = model.context_length - len(prompt_ids)
        if room < 1:
            raise ContextOverflow(f"prompt of {len(prompt_ids)} ids, context of {model.context_length}")
        request = Request(
            list(prompt_ids), sampling, frozenset(stop_ids), max_tokens=min(sampling.max_tokens, room)
        )
        scheduler.submit(request)
        return await asyncio.wrap_future(request.answer)

    async def score(self, token_ids: Sequence[int]) -> list[float | None]:
        """Return each id's raw logprob given those before it; see `Engine.score`."""
        model, scheduler = self._started()
        job = Job(lambda: _score(model, list(token_ids)), alone=False)
        scheduler.submit(job)
        return await asyncio.wrap_future(job.answer)

    async def update_weights(self, weights: Mapping[str, Any] | Path, version: str) -> None:
        """Let running requests finish, then sample with other weights of the same architecture.

        Args:
            weights: A state dict, left unchanged until this returns, or a Hugging Face folder.
            version: Recorded with every id sampled from now on.

        Raises:
            ConfigError: The weights don't fit the model, which keeps those it has.
        """
        model, scheduler = self._started()

        def swap() -> None:
            model.load_weights(weights)
            scheduler.clear_cache()
            scheduler.policy_version = version

        job = Job(swap, alone=True)
        scheduler.submit(job)
        await asyncio.wrap_future(job.answer)

    def _started(self) -> tuple[PackedModel, Scheduler]:
        if self._loaded is None:
            raise RuntimeError("the embedded engine is not started: await start() first")
        return self._loaded

    @cached_property
    def _tokenizer(self) -> Any:
        """Loaded at the first request with a stop string."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._folder, local_files_only=True)


def _score(model: PackedModel, token_ids: list[int]) -> list[float | None]:
    import torch

    row = KVRow(model.layers)
    scores: list[float | None] = [None]
    for start in range(0, len(token_ids) - 1, PIECE_TOKENS):
        targets = token_ids[start + 1 : start + 1 + PIECE_TOKENS]
        logits = model.forward([Piece(row, token_ids[start : start + len(targets)], "all")])
        ids = torch.tensor(targets, device=logits.device)[:, None]
        scores.extend(logits.log_softmax(-1).gather(1, ids)[:, 0].tolist())
    return scores[: len(token_ids)]


def _recorded_name(folder: Path) -> str:
    try:
        manifest = json.loads((folder / "lachesis.json").read_text())
        return f"{manifest['name']}@{manifest['sha256'][:12]}"
    except FileNotFoundError:
        return folder.name
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}/lachesis.json is damaged ({error!r}); fetch the model again") from error
