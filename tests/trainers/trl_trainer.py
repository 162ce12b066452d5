"""TRL's GRPO trainer on a CPU, and what it trains on kept for a look; imports TRL, which takes seconds."""

from copy import deepcopy

import torch
from trl import GRPOConfig, GRPOTrainer


def cpu_config(tmp_path, **changes) -> GRPOConfig:
    return GRPOConfig(
        **{
            "output_dir": str(tmp_path / "trl"),
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_steps": 3,
            "learning_rate": 0.01,
            "lr_scheduler_type": "constant",
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            "seed": 0,
            **changes,
        }
    )


class SpyingTrainer(GRPOTrainer):
    """Keeps each batch, with the logprobs that its weights of that moment give it, and what was said."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        kept = vars(self).setdefault("batches", [])
        if not kept:
            self.first = deepcopy(self.model)
        by = {"recomputed": self.model, "by_first_weights": self.first}
        with torch.no_grad():
            logps = {
                name: self._get_per_token_logps_and_entropies(
                    model, ids, attention, batch["completion_ids"].size(1)
                )[0]
                for name, model in by.items()
            }
        kept.append({**batch, **logps})
        return batch

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        keys = [each.get("item_key") for each in inputs]
        episodes = zip(keys, completions, rewards[:, 0].tolist(), strict=True)
        vars(self).setdefault("episodes", []).extend(episodes)
        return rewards
