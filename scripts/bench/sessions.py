"""What a managed session costs per turn, in CPU time, as its history grows; and what rendering again would.

    python scripts/bench/sessions.py --tokenizer .cache/tokenizers/qwen3

One conversation of 200 tool turns, 32k tokens in the end, with an engine that answers at once.
What is measured is ours: the bridge, the tokenizer, the parser, the records.
"""

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

from inference.engine import Generation
from inference.managed import ManagedClient
from inference.scripted_engine import ScriptedEngine
from trajectories.messages import Message, ToolSchema
from trajectories.turn import SamplingParams

TURNS = 200
OUTPUT = (
    'Let me look.\n<tool_call>\n{"name": "terminal", "arguments": {"command": "ls -la src"}}\n</tool_call>'
)
RESULT = "".join(f"-rw-r--r-- 1 dev dev {size} module_{size}.py\n" for size in range(1000, 1006))
WINDOW = 10
"""Turns whose median is reported."""
TOOL: ToolSchema = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Run a shell command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}


class InstantEngine(ScriptedEngine):
    """Gives one output for ever, without a look at the prompt."""

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session_id: str,
        stop_ids: Sequence[int] = (),
    ) -> Generation:
        """Return the output."""
        return self.answer

    answer: Generation


async def measure(tokenizer: str) -> dict[str, object]:
    """Run the conversation and return its figures, in milliseconds of CPU."""
    engine = InstantEngine([])
    client = ManagedClient(engine, tokenizer)
    await client.start()
    bridge = client.bridge
    end = bridge.encoder.text_of(min(client.report.end_ids))
    output_ids = bridge.encoder.encode(OUTPUT + end)
    engine.answer = Generation(output_ids, [-0.5] * len(output_ids), "stop")
    opening = [Message.system("You are an engineer."), Message.user("Mend the failing test.")]
    history, costs_ms, again_ms = [*opening], list[float](), dict[int, float]()
    prompt_tokens = 0
    async with client.session("bench", opening, [TOOL]) as session:
        new: list[Message] = []
        gc.disable()
        for turn in range(1, TURNS + 1):
            start = time.process_time()
            completion = await session.extend(new, SamplingParams())
            costs_ms.append((time.process_time() - start) * 1e3)
            history += [*new, completion.message]
            prompt_tokens = completion.turn.prompt_tokens
            if turn in (50, TURNS):
                again_ms[turn] = cpu_ms(partial(bridge.prompt, history, [TOOL], now=datetime.now()))
            call = completion.message.tool_calls[0]
            new = [Message.tool(RESULT, call_id=call.id, name=call.name)]
    at_50 = median(costs_ms[50 - WINDOW : 50])
    return {
        "template": client.report.template,
        "prompt_tokens_in_the_end": prompt_tokens,
        "ms_at_turn_2": round(median(costs_ms[1 : 1 + WINDOW]), 3),
        "ms_at_turn_50": round(at_50, 3),
        f"ms_at_turn_{TURNS}": round(median(costs_ms[-WINDOW:]), 3),
        "growth_2_to_200": round(median(costs_ms[-WINDOW:]) / median(costs_ms[1 : 1 + WINDOW]), 2),
        "rendering_again_ms_at_turn_50": round(again_ms[50], 3),
        f"rendering_again_ms_at_turn_{TURNS}": round(again_ms[TURNS], 3),
        "times_cheaper_at_turn_50": round(again_ms[50] / at_50, 1),
    }


def cpu_ms(work: Callable[[], object], repetitions: int = 5) -> float:
    """Return the median CPU time of ``work``, all threads together."""
    costs: list[float] = []
    for _ in range(repetitions):
        start = time.process_time()
        work()
        costs.append((time.process_time() - start) * 1e3)
    return median(costs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", required=True, type=Path, help="folder with tokenizer.json")
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(str(arguments.tokenizer))), indent=2))


if __name__ == "__main__":
    main()
