"""Rollouts that end in every way an adapter has to deal with, in turn."""

from itertools import cycle

from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from inference.scripted import ScriptedClient
from rollouts.config import RunConfig
from trajectories.errors import ModelError
from trajectories.messages import Message, ToolCall
from trajectories.turn import PolicySpan, SamplingParams, Turn

FATES = ("good", "rows", "silent", "failed")
REWARDS = {"good": 1.0, "rows": 0.5, "silent": 0.25}
"""Of what is scored; ``rows`` breaks into two token rows, in ``silent`` no token is sampled."""


class Fates(BaseAgentEnv):
    """Whose rollouts are scored by what became of them."""

    name = "fates"

    def __init__(self):
        super().__init__(EnvConfig())

    async def setup(self):
        self.items = [{"id": "a", "prompt": "Go."}, {"id": "b", "prompt": "Go."}]

    def format_prompt(self, item):
        return item["prompt"]

    async def compute_reward(self, item, result, ctx):
        return REWARDS[result.messages[1].content]


def turn(message, prompt_ids, output_ids, finish_reason="stop"):
    logprobs = [-0.5 * token_id for token_id in output_ids]
    spans = [PolicySpan("7", 0, len(output_ids))]
    return Turn(message, finish_reason, SamplingParams(), prompt_ids, output_ids, logprobs, "raw", spans)


def fates_client(*fates: str) -> ScriptedClient:
    """A model whose conversations meet ``fates``, in the order they begin."""
    upcoming = cycle(fates or FATES)

    def reply(messages, tools):
        if messages[-1].role == "tool":
            return turn(Message.assistant("done"), [9, 9], [6, 7])
        fate = next(upcoming)
        if fate == "failed":
            return ModelError("the server is gone", retryable=False)
        message = Message.assistant(fate)
        if fate == "rows":
            message = Message.assistant(fate, tool_calls=[ToolCall("c", "no_such_tool", {})])
        return turn(message, [1, 2], [] if fate == "silent" else [3, 4, 5])

    return ScriptedClient(reply)


def run_in(tmp_path) -> RunConfig:
    """A run whose first rollouts may fail."""
    return RunConfig(output_dir=tmp_path, name="run", failure_limit=100)
