"""The steps of a weight hand-over to vLLM, and what it leaves behind when one of them fails."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from inference.vllm_weights import VllmWeights
from trajectories.errors import ConfigError, ModelError


@asynccontextmanager
async def server(answers: dict[str, tuple[int, dict]]):
    """A server that knows some routes; yields its URL and the requests it got."""
    seen: list[tuple[str, dict, dict]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        seen.append((request.path, dict(request.query), body))
        status, content = answers.get(request.path, (404, {}))
        return web.json_response(content, status=status)

    app = web.Application()
    app.router.add_post("/{route:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


DONE = {"/pause": (200, {"status": "paused"}), "/collective_rpc": (200, {"results": [None]})}
DONE |= {"/reset_prefix_cache": (200, {"success": True}), "/resume": (200, {"status": "resumed"})}
DONE |= {"/update_weight_version": (200, {"success": True})}


async def test_every_server_waits_for_its_requests_reloads_forgets_and_goes_on_under_the_new_name(tmp_path):
    async with server(DONE) as (first, seen), server(DONE) as (second, seen_too):
        await VllmWeights([first, second + "/"]).update_weights(tmp_path, "7")

    assert seen == [
        ("/pause", {"mode": "wait"}, {}),
        ("/collective_rpc", {}, {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}),
        ("/reset_prefix_cache", {}, {}),
        ("/update_weight_version", {}, {"new_version": "7"}),
        ("/resume", {}, {}),
    ]
    assert seen_too == seen


@pytest.mark.parametrize(
    ("route", "answer"), [("/collective_rpc", (500, {})), ("/reset_prefix_cache", (200, {"success": False}))]
)
async def test_a_server_that_may_hold_either_weights_stays_paused(tmp_path, route, answer):
    async with server({**DONE, route: answer}) as (url, seen):
        with pytest.raises(ModelError, match=route.strip("/") if answer[0] == 500 else "prefix cache"):
            await VllmWeights([url]).update_weights(tmp_path, "7")
    assert "/resume" not in [path for path, _, _ in seen]


async def test_a_server_without_development_routes_is_a_config_error_that_names_the_variable(tmp_path):
    async with server({}) as (url, _):
        with pytest.raises(ConfigError, match="VLLM_SERVER_DEV_MODE=1"):
            await VllmWeights([url]).update_weights(tmp_path, "7")


async def test_a_server_that_is_gone_is_a_model_error(tmp_path):
    async with server(DONE) as (url, _):
        pass
    with pytest.raises(ModelError, match="weight hand-over"):
        await VllmWeights([url]).update_weights(tmp_path, "7")
