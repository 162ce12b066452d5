"""An environment written for Atropos, run by its own client against whatever serves its rollout API.

    python atropos_env.py URL TOKENIZER STEPS

Runs in the interpreter that has atroposlib; imports nothing of ours.
"""

import asyncio
import sys

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup


class Numbers(BaseEnv):
    """Numbered groups."""

    name = "numbers"
    number = 0

    async def setup(self):
        pass

    async def get_next_item(self):
        self.number += 1
        return self.number

    async def collect_trajectories(self, item):
        await asyncio.sleep(0.01)
        size = self.config.group_size
        group = ScoredDataGroup(
            tokens=[[7, 8, item, 100 + n] for n in range(size)],
            masks=[[-100, -100, item, 100 + n] for n in range(size)],
            scores=[float(n) for n in range(size)],
            inference_logprobs=[[1.0, 1.0, -0.5, -0.25] for _ in range(size)],
        )
        return group, []

    async def evaluate(self):
        pass

    async def wandb_log(self, wandb_metrics=None):
        """Log nothing: now and then the stand-in for its model server would be asked for metrics it lacks."""


def main(url: str, tokenizer: str, steps: str) -> None:
    config = BaseEnvConfig(
        rollout_server_url=url,
        tokenizer_name=tokenizer,
        group_size=4,
        use_wandb=False,
        total_steps=int(steps),
        max_num_workers=4,
        max_token_length=512,
        steps_per_eval=0,
        wandb_name="numbers",
    )
    env = Numbers(
        config,
        [
            APIServerConfig(
                model_name="none", base_url="http://127.0.0.1:1", api_key="x", server_type="openai"
            )
        ],
        testing=True,
    )
    asyncio.run(env.env_manager())


if __name__ == "__main__":
    main(*sys.argv[1:])
