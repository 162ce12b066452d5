"""Atropos 0.4 against our server, and our environments against Atropos' own; the real package each time."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from rollouts.api.atropos_sink import AtroposSink
from rollouts.api.server import running_server
from scripts.free_port import free_port
from tests.real_parts import python_with
from tests.rollouts.api.groups import group_of
from tests.rollouts.api.serving import ROOT, client_of, config_in, run
from tests.rollouts.api.small_run import plan, small_serving

pytestmark = [pytest.mark.xdist_group("atropos"), pytest.mark.timeout(300)]
HERE = Path(__file__).parent
API_TESTS = ("test_api_legacy.py", "test_api_compression.py", "test_api_messages_handling.py")
TRAINER = {
    "wandb_group": "g",
    "wandb_project": "p",
    "batch_size": 8,
    "max_token_len": 512,
    "checkpoint_dir": "checkpoints",
    "save_checkpoint_interval": 0,
    "starting_step": 0,
    "num_steps": 100,
}


@pytest.fixture(scope="module")
def atropos_python() -> str:
    """The interpreter of a virtual environment with atroposlib 0.4.0."""
    return python_with("atropos")


async def test_atropos_own_api_tests_pass_unchanged(tmp_path, atropos_python):
    _, folder = await run(atropos_python, "-c", "import atroposlib; print(list(atroposlib.__path__)[0])")
    tests = [str(Path(folder.strip()) / "tests" / name) for name in API_TESTS]
    code, out = await run(
        *(atropos_python, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"),
        *("-p", "atropos_plugin", *tests),
        PYTHONPATH=str(HERE),
        ATROPOS_TEST_FOLDER=str(tmp_path),
        ROLLOUT_API_PYTHON=sys.executable,
        ROLLOUT_API_ROOT=str(ROOT),
        ROLLOUT_API_PORT=str(free_port()),
    )
    assert code == 0, out
    assert "36 passed" in out


@asynccontextmanager
async def trainer(url: str):
    """A trainer of Atropos' kind."""
    async with aiohttp.ClientSession(url, raise_for_status=True) as http:
        async with http.post("/register", json=TRAINER) as response:
            assert (await response.json())["uuid"]
        yield http


async def next_batch(http: aiohttp.ClientSession, alive=lambda: True):
    while alive():
        async with http.get("/batch") as response:
            if batch := (await response.json())["batch"]:
                return batch
        await asyncio.sleep(0.1)
    raise AssertionError("the environment ended")


async def test_atropos_own_environment_client_feeds_a_trainer_through_our_server(
    tmp_path, atropos_python, model_folder
):
    async with running_server(config_in(tmp_path)) as url, trainer(url) as http:
        environment = await asyncio.create_subprocess_exec(
            *(atropos_python, str(HERE / "atropos_env.py"), url, str(model_folder), "100")
        )
        try:
            batches = [await next_batch(http, lambda: environment.returncode is None) for _ in range(3)]
            async with http.get("/status") as response:
                assert (await response.json())["current_step"] == 3
        finally:
            if environment.returncode is None:
                environment.kill()
            await environment.wait()
    groups = [group for batch in batches for group in batch]
    assert [len(batch) for batch in batches] == [2, 2, 2]
    assert sorted(group["tokens"][0][2] for group in groups) == [1, 2, 3, 4, 5, 6]
    for group in groups:
        number = group["tokens"][0][2]
        assert group["tokens"] == [[7, 8, number, 100 + n] for n in range(4)]
        assert group["masks"] == [[-100, -100, number, 100 + n] for n in range(4)]
        assert group["scores"] == [0.0, 1.0, 2.0, 3.0]
        assert group["inference_logprobs"] == [[1.0, 1.0, -0.5, -0.25]] * 4
        assert group["env_id"] == 0


@asynccontextmanager
async def atropos_server(python: str):
    """Atropos' own `run-api`."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(python, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(port)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async for line in process.stderr:
        if b"Uvicorn running" in line:
            break
    draining = asyncio.create_task(process.stderr.read())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
        await draining


async def test_our_environment_feeds_a_trainer_through_atropos_own_server(tmp_path, atropos_python):
    async with atropos_server(atropos_python) as url, trainer(url) as http:
        async with http.get("/batch"):
            pass  # the trainer has started
        sink = AtroposSink(url, "numbers", weight=1.0, min_allocation=None, group_size=2)
        async with sink, small_serving(sink, tmp_path, max_groups=8) as serving:
            serving_all = asyncio.ensure_future(serving.run(plan()))
            batches = [await next_batch(http) for _ in range(2)]
            await serving_all
            await sink.leave()
    groups = [group for batch in batches for group in batch]
    assert sorted(group["scores"] for group in groups) == [[float(n)] * 2 for n in range(8)]
    for group in groups:
        assert group["tokens"] == [[1, 2, 3, 4, 5]] * 2
        assert group["masks"] == [[-100, -100, -100, 4, 5]] * 2
        assert group["inference_logprobs"] == [[1.0, 1.0, 1.0, -0.5, -0.25]] * 2


async def test_groups_cross_from_either_wire_to_the_other(tmp_path):
    async with client_of(config_in(tmp_path)) as client, trainer(client.url) as http:
        env_id = (await client.register("test")).env_id
        async with http.get("/batch"):
            pass
        native = group_of("g", rewards=(1.0,) * 8, rows=2)
        await client.push(env_id, native)
        [group] = await next_batch(http)
        assert group["tokens"] == [[1, 2, 10 + n, 20] for n in range(8)]
        assert group["masks"] == [[-100, -100, 10 + n, 20] for n in range(8)]
        assert group["inference_logprobs"] == [[1.0, 1.0, -0.25, -0.5]] * 8
        legacy = {
            "tokens": [[5, 6, 7], [5, 6, 8]],
            "masks": [[-100, 6, 7], [5, -100, 8]],  # the first token can't be trained on
            "scores": [1, 0],
            "inference_logprobs": [[1.0, -0.5, 1.0], [-0.5, 1.0, -0.125]],
            "group_overrides": {"group_size": 2},
        }
        async with http.post("/scored_data", json=legacy):
            pass
        batch = await client.lease(1)
        async with http.get("/metrics") as response:
            assert "lachesis_rollout_api_legacy_rows_left_out_total 8.0" in await response.text()
    assert batch is not None
    [leased] = batch.groups
    rows = [rollout.rows[0] for rollout in leased.group.rollouts]
    assert [rollout.reward for rollout in leased.group.rollouts] == [1.0, 0.0]
    assert [row.loss_mask for row in rows] == [[0, 1, 1], [0, 0, 1]]
    assert [row.logprobs for row in rows] == [[None, -0.5, None], [None, None, -0.125]]
    assert leased.group.extras == {"group_overrides": {"group_size": 2}}
    assert leased.group.policy_version == 1, "the legacy trainer's first step"


BAD = {
    "unequal counts": ({"masks": [[1]]}, 422, "masks"),
    "unequal lengths": ({"masks": [[1], [1, 1]]}, 422, "masks[0]"),
    "unknown environment": ({"env_id": 7}, 404, "env_id"),
    "too large an id": ({"tokens": [[1, 2**40], [1, 2]]}, 422, "tokens[0]"),
    "no sequences": ({"tokens": [], "masks": [], "scores": []}, 422, "tokens"),
    "text for a score": ({"scores": ["a", "b"]}, 422, "scores"),
    "short logprobs": ({"inference_logprobs": [[1.0], [1.0]]}, 422, "inference_logprobs[0]"),
}


@pytest.mark.parametrize(("changes", "status", "named"), BAD.values(), ids=BAD.keys())
async def test_a_bad_push_is_refused_by_name_and_takes_its_neighbours_with_it(
    tmp_path, changes, status, named
):
    good = {"tokens": [[1, 2], [1, 3]], "masks": [[1, 2], [1, 3]], "scores": [1, 0]}
    async with client_of(config_in(tmp_path)) as client, aiohttp.ClientSession(client.url) as http:
        async with http.post("/scored_data_list", json=[good, {**good, **changes}]) as response:
            assert response.status == status
            assert named in (await response.json())["detail"]
        async with http.post(
            "/scored_data", data=b'{"tokens":[[1]],"masks":[[1]],"scores":[NaN]}'
        ) as response:
            assert response.status == 400
        assert (await client.status()).waiting == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"group_size": 0},
        {"weight": -1},
        {"weight": 1e308},
        {"min_batch_allocation": -1},
        {"max_token_length": -1},
        {"max_token_length": 10**400},
    ],
    ids=lambda changes: str(changes)[:30],
)
async def test_a_registration_that_would_break_the_shares_of_others_is_refused(tmp_path, changes):
    wanted = {"max_token_length": 512, "desired_name": "e", "weight": 1.0, "group_size": 4}
    async with client_of(config_in(tmp_path)) as client, trainer(client.url) as http:
        async with http.get("/batch"):
            pass
        async with http.post("/register-env", json=wanted) as response:
            env_id = (await response.json())["env_id"]
        wrong = json.dumps({**wanted, **changes})
        async with (
            aiohttp.ClientSession(client.url) as other,
            other.post("/register-env", data=wrong) as response,
        ):
            assert response.status == 422
        async with http.get("/status-env", json={"env_id": env_id}) as response:
            assert (await response.json())["env_weight"] == 1.0


async def test_environments_make_enough_for_a_large_batch_of_a_legacy_trainer(tmp_path):
    large = {**TRAINER, "batch_size": 64}
    async with client_of(config_in(tmp_path, target_groups=4)) as client:
        env_id = (await client.register("test", group_size=2)).env_id
        async with aiohttp.ClientSession(client.url, raise_for_status=True) as http:
            async with http.post("/register", json=large), http.get("/batch"):
                pass
            for n in range((await client.heartbeat(env_id, 0)).room):
                await client.push(env_id, group_of(f"g{n}"))
            assert len(await next_batch(http)) == 32


async def test_batches_that_are_asked_for_at_once_differ_and_count_as_a_step_each(tmp_path):
    async with client_of(config_in(tmp_path)) as client, trainer(client.url) as http:
        env_id = (await client.register("test")).env_id
        for n in range(8):
            await client.push(env_id, group_of(f"g{n}", rewards=(float(n),) * 4))
        batches = await asyncio.gather(*(next_batch(http) for _ in range(4)))
        async with http.get("/status") as response:
            assert (await response.json())["current_step"] == 4
    assert sorted(group["scores"][0] for batch in batches for group in batch) == [float(n) for n in range(8)]


async def test_resetting_needs_the_operators_leave(tmp_path):
    async with client_of(config_in(tmp_path)) as client, aiohttp.ClientSession(client.url) as http:
        env_id = (await client.register("test")).env_id
        await client.push(env_id, group_of("g"))
        async with http.get("/reset_data") as response:
            assert response.status == 403
        assert (await client.status()).waiting == 1


async def test_a_full_queue_is_an_error_that_atropos_client_tries_again(tmp_path):
    good = {"tokens": [[1, 2]], "masks": [[1, 2]], "scores": [1]}
    async with (
        client_of(config_in(tmp_path, max_groups=1)) as client,
        aiohttp.ClientSession(client.url) as http,
    ):
        async with http.post("/scored_data_list", json=[good, good]) as response:
            assert response.status == 503
        assert (await client.status()).waiting == 0
