"""A loopback server that speaks OpenAI's chat completions and knows how to make directories and files."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Reply = dict[str, Any]
Brain = Callable[[list[dict[str, Any]]], Reply]


def says(text: str) -> Reply:
    return {"role": "assistant", "content": text}


def calls(name: str, arguments: str) -> Reply:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c0", "type": "function", "function": function}],
    }


def runs(command: str) -> Reply:
    return calls("terminal", json.dumps({"command": command}))


def handy(messages: list[dict[str, Any]]) -> Reply:
    """Do the simplest tasks, give up on others."""
    if messages[-1]["role"] == "tool":
        return says("Done.")
    task = messages[-1]["content"]
    if made := re.search(r"directory named (\w+)\.", task):
        return runs(f"mkdir {made[1]}")
    if made := re.search(r"empty file named ([\w.]+)\.", task):
        return runs(f"touch {made[1]}")
    return says("I can't.")


@asynccontextmanager
async def chat_server(brain: Brain = handy, delay_s: float = 0.0, port: int = 0) -> AsyncIterator[str]:
    """Serve until the block ends; gives the base URL."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        await asyncio.sleep(delay_s)
        reply = brain(body["messages"])
        reason = "tool_calls" if reply.get("tool_calls") else "stop"
        return web.json_response(
            {
                "id": "x",
                "object": "chat.completion",
                "model": body["model"],
                "choices": [{"index": 0, "message": reply, "finish_reason": reason}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "handy", "object": "model"}]})

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", complete), web.get("/v1/models", models)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
