"""Word problems with a Python interpreter at hand, judged by the final number.

Problems in the style of GSM8K (Cobbe et al. 2021, arXiv:2110.14168) are generated from a seed; the data set
itself is read with ``--env.dataset openai/gsm8k:main``.
"""

from pydantic import BaseModel, ConfigDict, Field

from environments.agent_loop import Transcript
from environments.base import BaseAgentEnv
from environments.config import EnvConfig
from environments.gsm8k_problems import generate_problems
from environments.items import TaskItem
from environments.reward import ToolContext
from environments.scorers import final_number
from trajectories.messages import Message, ToolCall

INSTRUCTION = "Use the python tool to compute. End your answer with a line '#### ' and the number alone."


class GSM8KEnvConfig(EnvConfig):
    """Settings of the word problems."""

    generated_items: int = Field(default=256, ge=1)
    """How many problems to generate for training; a quarter as many others are generated for evaluation."""


class GSM8KItem(BaseModel):
    """One problem, in the data set's own form."""

    model_config = ConfigDict(extra="allow")

    question: str
    answer: str = Field(pattern=r"####\s*-?\d")
    """Worked solution, its last line ``#### `` and the number."""


class GSM8KEnv(BaseAgentEnv):
    """Problems such as "A baker fills 7 trays with 12 rolls each …"."""

    name = "gsm8k"
    toolsets = ("python",)
    config_class = GSM8KEnvConfig
    item_model = GSM8KItem
    config: GSM8KEnvConfig

    async def setup(self) -> None:
        """Generate the problems, or load the dataset's."""
        if self.config.dataset is not None:
            return await super().setup()
        count = self.config.generated_items
        problems = generate_problems(self.config.seed, count + max(count // 4, 1))
        self.items, self.eval_items = problems[:count], problems[count:]

    def format_prompt(self, item: TaskItem) -> str:
        """Return the question and the form of the answer."""
        return f"{item['question']}\n{INSTRUCTION}"

    def worked_examples(self) -> list[list[Message]]:
        """Show one problem being computed."""
        question = "Tom has 3 boxes with 12 pens each and gives 5 pens away. How many pens are left?"
        call = ToolCall("call_0", "python", {"code": "print(3 * 12 - 5)"})
        return [
            [
                Message.user(f"{question}\n{INSTRUCTION}"),
                Message.assistant(tool_calls=[call]),
                Message.tool('{"output":"31\\n","exit_code":0}', call_id=call.id, name=call.name),
                Message.assistant("31 pens are left.\n#### 31"),
            ]
        ]

    async def compute_reward(self, item: TaskItem, result: Transcript, ctx: ToolContext) -> float:
        """Give 1 where the answer's final number equals the solution's, else 0."""
        return float(final_number(result.answer) == final_number(item["answer"]))


if __name__ == "__main__":
    GSM8KEnv.cli()
