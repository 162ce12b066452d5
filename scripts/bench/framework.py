"""What the framework costs per model call, in CPU time of the client, where the model answers at once.

    python scripts/bench/framework.py --model "$(python scripts/fetch_model.py)"

Whole rollouts (environment, agent loop, a trivial host tool, the record on disk) against a server in a
process of its own. The floor beside each figure is a hand-written aiohttp loop over the same server with no
framework at all: it renders, parses and records nothing. Absolute times depend on the machine; what counts
are the ratios.
"""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiohttp import web

from backends import create_backend
from environments.base import BaseAgentEnv
from environments.config import EnvConfig, SamplingConfig
from inference.detect import connect
from inference.managed import ManagedClient
from inference.model_files import load_model_files
from inference.openai_client import OpenAIClient
from inference.session import ModelClient
from rollouts.attempt import World
from rollouts.runner import RunLimits, Runner
from rollouts.specs import RolloutSpec
from rollouts.store import TrajectoryStore
from toolsets.tool import Tool, ToolCallContext, ToolResult, tool

CALL = '{"command": "ls -la src"}'
OUTPUT = f'Let me look.\n<tool_call>\n{{"name": "look", "arguments": {CALL}}}\n</tool_call><|im_end|>'
LINES = "".join(f"-rw-r--r-- 1 dev dev {size} module_{size}.py\n" for size in range(1000, 1100))
LONG_RESULT_TOKENS = 400
CONCURRENT = 64
RUNS = 7
GROUP_SIZE = 8
"""Rollouts of one task; only they have their prompt in common."""
PROMPT = "Find the module whose test fails, and say which one it is."


@dataclass(frozen=True)
class Answers:
    """What the server says at turn k of every conversation, made beforehand."""

    chat: list[bytes]
    tokens: bytes


def answers(tokenizer: Any, turns: int, result_tokens: int, with_ids: bool) -> Answers:
    """Build the answers of conversations with so many turns and so long tool results."""
    output_ids = tokenizer.encode(OUTPUT, add_special_tokens=False).ids
    logprobs = [{"token": "?", "token_id": token_id, "logprob": -0.51234} for token_id in output_ids]
    content = {"content": logprobs}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": CALL}}
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    chat: list[bytes] = []
    prompt_ids = list(range(100, 250))
    for _ in range(turns):
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        body: dict[str, Any] = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        if with_ids:
            choice |= {"token_ids": output_ids, "logprobs": content}
            body["prompt_token_ids"] = prompt_ids
        chat.append(as_vllm(body))
        prompt_ids = prompt_ids + output_ids + list(range(300, 300 + result_tokens + 20))
    tokens = {"choices": [{"token_ids": output_ids, "finish_reason": "stop", "logprobs": content}]}
    return Answers(chat, as_vllm(tokens))


def as_vllm(body: Any) -> bytes:
    """Write JSON as vLLM does, without spaces."""
    return json.dumps(body, separators=(",", ":")).encode()


def serve(said: Answers, started: Connection) -> None:
    """Run the server until its process is ended."""

    async def chat(request: web.Request) -> web.Response:
        turn = (await request.read()).count(b'"role":"tool"')
        return web.Response(body=said.chat[turn], content_type="application/json")

    async def tokens(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=said.tokens, content_type="application/json")

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 1 << 20}]})

    async def run() -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_post("/inference/v1/generate", tokens)
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        started.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def serving(said: Answers) -> Iterator[str]:
    """Run `serve` in another process; yield its URL."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(said, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def looking(result: str) -> Tool:
    """Return a tool on the host that gives ``result`` and costs nothing."""

    @tool(runs_in="host")
    async def look(context: ToolCallContext, command: str) -> ToolResult:
        """Run a command."""
        return ToolResult(result)

    return look


class BenchEnv(BaseAgentEnv):
    """One task, whose reward costs nothing."""

    name = "bench"

    def format_prompt(self, item):
        """Ask."""
        return item["prompt"]

    async def compute_reward(self, item, result, ctx):
        """Be content."""
        return 1.0


def spec(task: int, repetition: int) -> RolloutSpec:
    """Return one rollout of a task."""
    group, item = f"bench/{task}", {"prompt": f"{PROMPT} It is repository {task}."}
    return RolloutSpec(f"{group}/{repetition}", group, item, group, repetition, seed=repetition)


async def whole_rollouts(client: ModelClient, case: "Case", result: str) -> None:
    """Make the rollouts of a case and keep their records."""
    env = BenchEnv(EnvConfig(max_turns=case.turns, sampling=SamplingConfig(max_tokens=64)))
    tools = [looking(result)]
    env.tools_of = lambda toolsets: tools
    specs = [spec(*divmod(index, GROUP_SIZE)) for index in range(case.rollouts)]
    world = World(env, client, create_backend("local"), "bench")
    with tempfile.TemporaryDirectory() as folder, TrajectoryStore(Path(folder) / "t.jsonl") as store:
        await Runner(world, store, RunLimits(CONCURRENT, 1, 1)).run(specs)


async def floor(url: str, case: "Case", result: str, result_ids: list[int]) -> None:
    """Make the same calls by hand, keeping nothing."""
    schema = looking(result).schema
    gate = asyncio.Semaphore(CONCURRENT)

    async def post(pool: aiohttp.ClientSession, path: str, body: Any) -> Any:
        async with pool.post(url + path, json=body) as response:
            return json.loads(await response.read())

    async def by_chat(pool: aiohttp.ClientSession) -> None:
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        for _ in range(case.turns):
            answer = await post(pool, "/v1/chat/completions", {"messages": messages, "tools": [schema]})
            said = answer["choices"][0]["message"]
            json.loads(said["tool_calls"][0]["function"]["arguments"])
            messages += [said, {"role": "tool", "tool_call_id": "c", "content": result}]

    async def by_tokens(pool: aiohttp.ClientSession) -> None:
        ids = list(range(100, 250))
        for _ in range(case.turns):
            answer = await post(pool, "/inference/v1/generate", {"token_ids": ids, "sampling_params": {}})
            ids = ids + answer["choices"][0]["token_ids"] + result_ids

    async def one(pool: aiohttp.ClientSession) -> None:
        async with gate:
            await (by_tokens if case.wire == "tokens" else by_chat)(pool)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as pool:
        await asyncio.gather(*(one(pool) for _ in range(case.rollouts)))


@dataclass(frozen=True)
class Case:
    """What is measured."""

    wire: Literal["chat", "chat_ids", "tokens"]
    rollouts: int
    turns: int
    result_tokens: int


CASES = [
    Case(wire, rollouts, turns, tokens)
    for wire in ("chat", "chat_ids", "tokens")
    for rollouts, turns, tokens in ((512, 4, 10), (32, 25, LONG_RESULT_TOKENS), (32, 50, LONG_RESULT_TOKENS))
]


async def measure(case: Case, folder: Path) -> tuple[float, float]:
    """Return CPU milliseconds per model call: ours, and the floor."""
    files = load_model_files(folder)
    result_ids = files.tokenizer.encode(LINES).ids[: case.result_tokens]
    result = files.tokenizer.decode(result_ids)
    with serving(answers(files.tokenizer, case.turns, case.result_tokens, case.wire == "chat_ids")) as url:
        if case.wire == "tokens":
            client = ManagedClient(await connect(url, vocab_size=files.vocab_size), files)
        else:
            client = OpenAIClient(f"{url}/v1")
        await client.start()
        try:
            ours = await cpu_ms(lambda: whole_rollouts(client, case, result))
        finally:
            await client.close()
        by_hand = await cpu_ms(lambda: floor(url, case, result, result_ids))
    calls = case.rollouts * case.turns
    return ours / calls, by_hand / calls


async def cpu_ms(work: Callable[[], Awaitable[None]]) -> float:
    """Return the CPU time of ``work`` in this process, all threads together: the least of several runs.

    The machine's other work can only add to it.
    """
    costs: list[float] = []
    for _ in range(RUNS):
        started = time.process_time()
        await work()
        costs.append((time.process_time() - started) * 1e3)
    return min(costs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, type=Path, help="folder with tokenizer.json")
    arguments = parser.parse_args()
    print(f"{'wire':<10}{'rollouts':>9}{'turns':>6}{'ms/call':>9}{'floor':>8}{'ratio':>7}")
    costs: dict[tuple[str, int], float] = {}
    for case in CASES:
        ours, by_hand = asyncio.run(measure(case, arguments.model))
        costs[case.wire, case.turns] = ours * case.turns
        row = f"{case.wire:<10}{case.rollouts:>9}{case.turns:>6}{ours:>9.2f}{by_hand:>8.2f}"
        print(f"{row}{ours / by_hand:>7.2f}", flush=True)
    for wire in ("chat", "chat_ids", "tokens"):
        print(
            f"growth of a rollout's cost from 25 to 50 turns, {wire}: {costs[wire, 50] / costs[wire, 25]:.2f}"
        )


if __name__ == "__main__":
    main()
