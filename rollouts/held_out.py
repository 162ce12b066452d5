"""Which rollouts an evaluation consists of."""

from environments.base import BaseAgentEnv
from rollouts.specs import GroupSpec, plan_items


def held_out_plan(env: BaseAgentEnv, name: str, max_items: int) -> list[GroupSpec]:
    """Plan the evaluation items; the training items of an environment that holds none out."""
    items = env.eval_items or env.items
    return plan_items(name, items[:max_items], env.config.group_size, env.config.seed)
