"""What can be set of a GRPO run."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class LoraConfig(_Section):
    """Train low-rank adapters (Hu et al. 2021, arXiv:2106.09685) and leave the model's own weights alone."""

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0)
    """The adapters' output is scaled by alpha / rank."""
    targets: list[str] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get an adapter."""


class GrpoConfig(_Section):
    """The loop and its objective; see `trainers.grpo` for the formulas."""

    model: Path
    """Hugging Face folder of the policy the run begins with."""
    output_dir: Path
    """Folder of checkpoints and metrics; a run that finds a checkpoint there goes on from it."""
    steps: int = Field(default=100, ge=1)
    groups_per_step: int = Field(default=16, ge=1)
    zero_variance: Literal["drop", "resample", "keep"] = "drop"
    """Groups of equal rewards: train fewer groups, wait for others in their place, or train them as they
    are, which matters only with a KL term. All are counted."""
    max_staleness: int | None = Field(default=4, ge=0)
    """Groups with a token older than this many policy versions are dropped and counted; None trains all."""
    normalisation: Literal["rollout", "token", "constant"] = "rollout"
    """What a token's weight is divided by; see `trainers.grpo.token_weights`."""
    constant_tokens: int = Field(default=512, ge=1)
    """The divisor of `constant` normalisation, in tokens a rollout."""
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """The probability ratio is clipped at 1 - clip_low."""
    clip_high: float = Field(default=0.2, ge=0)
    """The probability ratio is clipped at 1 + clip_high."""
    kl_weight: float = Field(default=0.0, ge=0)
    """Weight of the divergence from the initial policy; 0 keeps no reference model."""
    learning_rate: float = Field(default=1e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly to its value."""
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    updates_per_batch: int = Field(default=1, ge=1)
    """Optimizer steps on each batch."""
    tokens_per_pass: int = Field(default=8192, ge=1)
    """Most tokens in one forward pass: a shared prompt once, padding included. Bounds memory and changes no
    result."""
    lora: LoraConfig | None = None
    """Train adapters instead of all weights; needs the extra `trainers`."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Steps between checkpoints. Groups are acknowledged at checkpoints, so those of a step that a crash
    undoes are delivered again."""
    keep_checkpoints: int = Field(default=2, ge=1)
    seed: int = 0
    """Seeds the adapters' first weights and dropout."""
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: int | None = Field(default=None, ge=1)
    """Cores an update computes with; torch's choice if unset."""
