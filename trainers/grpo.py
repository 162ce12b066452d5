"""GRPO on token rows: the objective, one optimizer step, and what is measured of it.

For the sampled tokens t of a batch, with the probability ratio r_t = π(t) / π_sampled(t), its rollout's
group-relative advantage A_t and a weight w_t,

    loss = - Σ_t w_t min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t)  +  kl_weight Σ_t w_t KL_t

which is GRPO (Shao et al. 2024, arXiv:2402.03300, equation 3) with separate clip bounds (DAPO, Yu et al.
2025, arXiv:2503.14476). π_sampled is the logprob the engine recorded, not one computed again: a batch may
hold tokens of several older policies, and each is corrected by what it was really drawn from. Sample at
temperature 1 without truncation; only there is the recorded distribution the one drawn from.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trainers.grpo_config import GrpoConfig
from trainers.memory import give_back
from trainers.policy import Policy, Tensor, open_policy
from trainers.shared_prompts import passes, shares_prompts
from trainers.training_rows import TrainingRow
from trajectories.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpdateMetrics:
    """What one update measured. Means are over tokens by their weights in the loss."""

    loss: float
    kl: float
    """Divergence from the first policy, estimated; 0 without a KL term."""
    entropy: float
    """Of the policy where the tokens were sampled, in nats."""
    ratio_mean: float
    ratio_max: float
    clip_fraction: float
    """Share of tokens whose ratio is outside the clip bounds."""
    logprob_delta: float
    """Mean |recomputed - recorded logprob| before the update. With fresh rollouts this is numeric noise; if
    it isn't, the engine and the trainer do not hold the same policy."""
    grad_norm: float
    updates_left_out: int
    """Optimizer steps whose gradient was not finite; they would have destroyed the policy."""
    learning_rate: float
    rows: int
    tokens: int


class Learner:
    """A policy and its optimizer.

    Args:
        config: Of the run.
        saved: Folder that `save` wrote; None begins with ``config.model``.

    Raises:
        ConfigError: The model can't be used, or ``saved`` is of a run that trains other weights.
    """

    def __init__(self, config: GrpoConfig, saved: Path | None = None):
        import torch

        torch.manual_seed(config.seed)
        self.config = config
        state = torch.load(saved / "learner.pt", weights_only=True) if saved else None
        if state and state["lora"] != self._lora:
            raise ConfigError(f"lora: {saved} was made with {state['lora']}; use another output_dir")
        self.step: int = state["step"] if state else 0
        """Batches trained; the loop counts them."""
        self.policy: Policy = open_policy(config, saved and saved / "model")
        self._trained = [p for p in self.policy.model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._trained, lr=config.learning_rate, weight_decay=config.weight_decay
        )
        if state:
            self._optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["rng"])

    def save(self, folder: Path) -> None:
        """Write everything that training goes on from."""
        import torch

        self.policy.save(folder / "model")
        state = {
            "step": self.step,
            "lora": self._lora,
            "optimizer": self._optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }
        torch.save(state, folder / "learner.pt")

    def update(self, rows: Sequence[TrainingRow]) -> UpdateMetrics:
        """Train on a batch; ``rows`` may not be empty.

        Raises:
            ConfigError: A sampled token has no recorded logprob.
        """
        import torch

        if self.config.threads:
            torch.set_num_threads(self.config.threads)
        rate = self.config.learning_rate * min(1.0, (self.step + 1) / max(1, self.config.warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        seen: list[_Seen] = []
        left_out = 0
        for _ in range(self.config.updates_per_batch):
            self._optimizer.zero_grad()
            seen.append(self._backward(rows))
            norm = torch.nn.utils.clip_grad_norm_(self._trained, self.config.max_grad_norm)
            if norm.isfinite():
                self._optimizer.step()
            else:
                left_out += 1
                logger.warning("batch %d: an update was left out: its gradient is %s", self.step, norm)
        give_back()
        first, last = seen[0], seen[-1]
        low, high = 1 - self.config.clip_low, 1 + self.config.clip_high
        return UpdateMetrics(
            loss=last.loss,
            kl=last.mean(last.kl),
            entropy=first.mean(first.entropy),
            ratio_mean=last.mean(last.ratios),
            ratio_max=float(last.ratios.max()),
            clip_fraction=last.mean(((last.ratios < low) | (last.ratios > high)).float()),
            logprob_delta=first.mean(first.ratios.log().abs()),
            grad_norm=float(norm),
            updates_left_out=left_out,
            learning_rate=rate,
            rows=len(rows),
            tokens=len(last.ratios),
        )

    @property
    def _lora(self) -> dict[str, Any] | None:
        return self.config.lora and self.config.lora.model_dump()

    def _backward(self, rows: Sequence[TrainingRow]) -> "_Seen":
        """Add up the gradient of the batch's loss, pass by pass."""
        import torch

        config = self.config
        token_weight = token_weights(rows, config)
        total, parts = 0.0, []
        share = shares_prompts(self.policy.model)
        for indices in passes([row.row for row in rows], config.tokens_per_pass, share=share):
            taken = [rows[index] for index in indices]
            old, advantages, weights = self._vectors(taken, [token_weight[index] for index in indices])
            new, entropy = self.policy.logprobs([row.row for row in taken])
            ratios = (new - old).exp()
            loss = policy_loss(ratios, advantages, weights, config)
            kl = torch.zeros_like(weights)
            if config.kl_weight:
                kl = divergence(new, self.policy.reference_logprobs([row.row for row in taken]))
                loss = loss + config.kl_weight * (weights * kl).sum()
            loss.backward()
            total += loss.item()
            parts.append(torch.stack([ratios.detach(), kl.detach(), entropy, weights]))
        return _Seen(total, *torch.cat(parts, dim=1))

    def _vectors(self, rows: Sequence[TrainingRow], weights: Sequence[float]) -> tuple[Tensor, ...]:
        """Return recorded logprob, advantage and weight of each sampled token, each ``[sampled]``."""
        import torch

        counts = [sum(row.row.loss_mask) for row in rows]
        vectors = (
            [logprob for row in rows for logprob in _recorded(row)],
            [row.advantage for row, count in zip(rows, counts, strict=True) for _ in range(count)],
            [weight for weight, count in zip(weights, counts, strict=True) for _ in range(count)],
        )
        return tuple(torch.tensor(vector, device=self.policy.model.device) for vector in vectors)


def policy_loss(ratios: Tensor, advantages: Tensor, weights: Tensor, config: GrpoConfig) -> Tensor:
    """Return the clipped objective, negated; all arguments are ``[sampled]``."""
    clipped = ratios.clamp(1 - config.clip_low, 1 + config.clip_high)
    return -(weights * (ratios * advantages).minimum(clipped * advantages)).sum()


def divergence(new: Tensor, reference: Tensor) -> Tensor:
    """Return each token's estimate of KL(π ‖ reference): e^d - d - 1 with d = reference - new.

    Unbiased for tokens drawn from π and never negative (Schulman 2020, "Approximating KL divergence"; GRPO's
    equation 4).
    """
    difference = reference - new
    return difference.exp() - difference - 1


def token_weights(rows: Sequence[TrainingRow], config: GrpoConfig) -> list[float]:
    """Return for each row the weight of one of its sampled tokens in the loss.

    With R rollouts in the batch and n_i sampled tokens in all rows of rollout i:

    - ``rollout``: 1 / (R n_i), each rollout counts the same (GRPO);
    - ``token``: 1 / Σ n_i, each token counts the same (DAPO);
    - ``constant``: 1 / (R constant_tokens), each token the same over all batches (Dr. GRPO, Liu et al. 2025,
      arXiv:2503.20783).

    None depends on how many rows a rollout is broken into: n_i counts the rollout's tokens, not a row's.
    """
    rollouts = sum(row.weight for row in rows)
    tokens = [sum(row.row.loss_mask) for row in rows]
    if config.normalisation == "token":
        return [1 / sum(tokens)] * len(rows)
    if config.normalisation == "constant":
        return [1 / (rollouts * config.constant_tokens)] * len(rows)
    return [row.weight / (rollouts * count) for row, count in zip(rows, tokens, strict=True)]


class _Seen(NamedTuple):
    """A batch as one pass over it saw it; vectors are ``[sampled]``."""

    loss: float
    ratios: Tensor
    kl: Tensor
    entropy: Tensor
    weights: Tensor

    def mean(self, vector: Tensor) -> float:
        return float((self.weights * vector).sum() / self.weights.sum())


def _recorded(row: TrainingRow) -> list[float]:
    """Return the recorded logprobs of a row's sampled tokens."""
    logprobs = [logprob for logprob, mask in zip(row.row.logprobs, row.row.loss_mask, strict=True) if mask]
    if None in logprobs:
        raise ConfigError(
            f"{row.trajectory_id} has sampled tokens without logprobs: GRPO needs an engine that "
            "reports them (model.kind embedded or managed)"
        )
    return [logprob for logprob in logprobs if logprob is not None]


if __name__ == "__main__":
    import sys

    from trainers.grpo_command import main

    sys.exit(main())
