"""The model being trained: what it thinks of the tokens it sampled, and its weights as engines take them.

Rows are computed as the engine sampled them, token for token, so at unchanged weights the logprobs are the
recorded ones up to numeric noise; anything else is a bug that a learning curve would not show.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from shutil import copyfile
from typing import Any

from trainers.grpo_config import GrpoConfig, LoraConfig
from trainers.shared_prompts import row_end, shared_prompt, shares_prompts
from trajectories.errors import ConfigError
from trajectories.rows import TokenRow

Tensor = Any
"""A ``torch.Tensor``; torch is imported only where a model is trained."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
)


class Policy(ABC):
    """A causal language model with weights to train."""

    def __init__(self, folder: Path):
        self._folder = folder
        """Where the run's first policy, and with it the tokenizer, comes from."""
        self.model: Any

    def logprobs(self, rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor]:
        """Return logprob and entropy of every sampled token; see `sampled_logprobs`."""
        return sampled_logprobs(self.model, rows)

    @abstractmethod
    def reference_logprobs(self, rows: Sequence[TokenRow]) -> Tensor:
        """Return the logprobs the run's first policy gives the sampled tokens, without gradient."""

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """Return the state dict of the plain model, as `EmbeddedEngine.update_weights` takes it."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `open_policy` goes on from."""

    def export(self, folder: Path) -> None:
        """Write a Hugging Face folder that any engine loads.

        A head that is tied to the embeddings is written all the same: a server that runs the model untied
        (see ``scripts/untie_embeddings.py``) needs it, others pass over it.
        """
        plain = self._plain_model()
        written: dict[int, str] = {}
        weights = plain.state_dict()
        for name, weight in weights.items():
            if written.setdefault(weight.data_ptr(), name) != name:
                weights[name] = weight.clone()
        plain.save_pretrained(folder, state_dict=weights)
        for name in TOKENIZER_FILES:
            if (self._folder / name).is_file():
                copyfile(self._folder / name, folder / name)

    @abstractmethod
    def _plain_model(self) -> Any:
        """Return the policy as a model without adapters."""


class FullPolicy(Policy):
    """All weights are trained.

    Args:
        config: Of the run.
        saved: What `save` wrote; None begins with ``config.model``.
    """

    def __init__(self, config: GrpoConfig, saved: Path | None):
        super().__init__(config.model)
        self.model = _load(saved or config.model, config)
        self._reference = _load(config.model, config).requires_grad_(False) if config.kl_weight else None

    def reference_logprobs(self, rows: Sequence[TokenRow]) -> Tensor:
        """See `Policy.reference_logprobs`."""
        import torch

        with torch.no_grad():
            return sampled_logprobs(self._reference, rows)[0]

    def weights(self) -> Mapping[str, Tensor]:
        """See `Policy.weights`."""
        return self.model.state_dict()

    def save(self, folder: Path) -> None:
        """See `Policy.save`."""
        self.export(folder)

    def _plain_model(self) -> Any:
        return self.model


class LoraPolicy(Policy):
    """Adapters are trained; the weights under them are the first policy's and serve as the reference.

    Raises:
        ConfigError: peft is missing.
    """

    def __init__(self, config: GrpoConfig, lora: LoraConfig, saved: Path | None):
        super().__init__(config.model)
        peft = _peft()
        base = _load(config.model, config)
        settings = peft.LoraConfig(
            r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.targets, task_type="CAUSAL_LM"
        )
        with warnings.catch_warnings():
            # peft 0.21 asks transformers 5 for an attribute by its old name
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            if saved is None:
                self.model = peft.get_peft_model(base, settings)
            else:
                self.model = peft.PeftModel.from_pretrained(base, saved, is_trainable=True)
        self.model.eval()

    def reference_logprobs(self, rows: Sequence[TokenRow]) -> Tensor:
        """See `Policy.reference_logprobs`."""
        import torch

        with torch.no_grad(), self.model.disable_adapter():
            return sampled_logprobs(self.model, rows)[0]

    def weights(self) -> Mapping[str, Tensor]:
        """See `Policy.weights`."""
        return self._plain_model().state_dict()

    def save(self, folder: Path) -> None:
        """See `Policy.save`."""
        self.model.save_pretrained(folder)

    def _plain_model(self) -> Any:
        return merged(self.model)


def open_policy(config: GrpoConfig, saved: Path | None) -> Policy:
    """Load the policy of a run, from what `Policy.save` wrote where there is something.

    Raises:
        ConfigError: The model can't be loaded or an extra is missing.
    """
    if config.lora is not None:
        return LoraPolicy(config, config.lora, saved)
    return FullPolicy(config, saved)


def merged(adapted: Any) -> Any:
    """Return a peft model as a plain one: a copy, since merging in place and back wears weights down."""
    return deepcopy(adapted).merge_and_unload()


def sampled_logprobs(model: Any, rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor]:
    """Return the natural logprob of every sampled token, and the entropy of where it was drawn from.

    Both are float32 ``[sampled]``, the tokens of the first row first; the entropy has no gradient. The prompt
    that all rows begin with is computed once, its gradient included: its keys and values are repeated for
    each row. Nothing is masked, since padding stands behind all that counts.
    """
    import torch

    device = model.device
    shared = shared_prompt(rows) if shares_prompts(model) else 0
    cache = None
    if shared:
        prompt = torch.tensor([rows[0].token_ids[:shared]], device=device)
        cache = model(input_ids=prompt, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(rows))
    rests = [row.token_ids[shared : row_end(row)] for row in rows]
    longest = max(map(len, rests))
    padded = torch.tensor([rest + [0] * (longest - len(rest)) for rest in rests], device=device)
    sampled = [
        (r, t - 1 - shared) for r, row in enumerate(rows) for t, mask in enumerate(row.loss_mask) if mask
    ]
    kept = sorted({position for _, position in sampled})
    logits = model(
        input_ids=padded,
        position_ids=torch.arange(shared, shared + longest, device=device)[None],
        past_key_values=cache,
        use_cache=cache is not None,
        logits_to_keep=torch.tensor(kept, device=device),
    ).logits
    column = {position: index for index, position in enumerate(kept)}
    chosen = logits[[r for r, _ in sampled], [column[position] for _, position in sampled]].float()
    everything = chosen.log_softmax(-1)
    ids = torch.tensor([rows[r].token_ids[position + 1 + shared] for r, position in sampled], device=device)
    with torch.no_grad():
        entropy = -(everything.exp() * everything).sum(-1)
    return everything.gather(1, ids[:, None])[:, 0], entropy


def _load(folder: Path, config: GrpoConfig) -> Any:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ConfigError(f"training needs torch ({error}): pip install 'lachesis-rl[torch]'") from error
    transformers.utils.logging.disable_progress_bar()
    try:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, config.dtype), local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"model: {folder} can't be loaded: {error}") from error
    try:
        model.to(config.device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device: {config.device} can't be used: {error}") from error
    return model.eval()  # with dropout the policy would not be the one that sampled


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError("lora: needs peft: pip install 'lachesis-rl[trainers]'") from error
    return peft
