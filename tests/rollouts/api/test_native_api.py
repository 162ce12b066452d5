"""The native routes, through the client and a real server."""

import asyncio
import gzip
import io
import json

import aiohttp
import msgspec
import pytest

from rollouts.api.client import ApiError, LeaseEnded, RolloutClient
from rollouts.api.server import running_server
from tests.rollouts.api.groups import group_of, row_of
from tests.rollouts.api.serving import client_of, config_in
from trajectories.errors import ConfigError


@pytest.fixture
async def client(tmp_path):
    async with client_of(config_in(tmp_path, max_body_mb=1, max_staleness=2)) as client:
        yield client


@pytest.fixture
async def env_id(client):
    return (await client.register("test")).env_id


async def test_a_group_arrives_as_it_was_pushed(client, env_id):
    group = group_of("g", rewards=(1.0, 0.5, -2.0), rows=3, policy_version=0)
    assert await client.push(env_id, group)
    batch = await client.lease(1)
    assert [(leased.group, leased.deliveries) for leased in batch.groups] == [(group, 1)]


async def test_groups_of_any_size_leave_whole_and_in_order(client, env_id):
    pushed = [group_of(f"g{n}", rewards=(0.0,) * (n + 1), policy_version=0) for n in range(5)]
    for group in pushed:
        await client.push(env_id, group)
    batch = await client.lease(5)
    assert [leased.group for leased in batch.groups] == pushed


async def test_a_group_pushed_twice_is_queued_once(client, env_id):
    assert await client.push(env_id, group_of("g"))
    assert not await client.push(env_id, group_of("g"))
    assert (await client.status()).waiting == 1


async def test_a_group_without_a_version_gets_that_of_its_push(client, env_id):
    await client.publish(7)
    await client.push(env_id, group_of("g"))
    assert (await client.lease(1)).groups[0].group.policy_version == 7


async def test_a_batch_that_is_not_acknowledged_comes_again_and_says_so(client, env_id):
    await client.push(env_id, group_of("g"))
    first = await client.lease(1, lease_s=0.2)
    second = await client.lease(1, wait_s=60)
    assert [leased.deliveries for leased in second.groups] == [2]
    with pytest.raises(LeaseEnded):
        await client.ack(first)
    await client.ack(second)
    await client.ack(second)
    assert (await client.status()).leased == 0


async def test_the_batch_block_acknowledges_at_its_end_and_gives_back_on_an_error(client, env_id):
    await client.push(env_id, group_of("g"))
    with pytest.raises(RuntimeError):
        async with client.batch(1):
            raise RuntimeError("the step failed")
    async with client.batch(1, lease_s=3) as batch:
        assert batch.groups[0].deliveries == 2
        await asyncio.sleep(4)
    status = await client.status()
    assert (status.waiting, status.leased, status.acked) == (0, 0, 1)


async def test_a_trainer_that_waits_gets_its_batch_when_it_is_whole(client, env_id):
    waiting = asyncio.ensure_future(client.lease(2, wait_s=20))
    for name in ("a", "b"):
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.push(env_id, group_of(name))
    assert len((await waiting).groups) == 2


async def test_a_trainer_that_went_away_takes_no_batch_with_it(client, env_id):
    waiting = asyncio.ensure_future(client.lease(1, wait_s=30))
    await asyncio.sleep(0.5)
    waiting.cancel()
    await asyncio.sleep(0.5)
    await client.push(env_id, group_of("g"))
    await asyncio.sleep(0.1)
    assert (await client.lease(1)).groups[0].deliveries == 1


async def test_groups_too_far_behind_are_never_delivered(client, env_id):
    await client.push(env_id, group_of("old", policy_version=1))
    await client.push(env_id, group_of("new", policy_version=2))
    await client.publish(4)
    assert [leased.group.key for leased in (await client.lease(1)).groups] == ["new"]
    assert await client.lease(1, wait_s=0) is None


async def test_an_environment_is_told_when_weights_change(client, env_id):
    await client.publish(1, updating_s=60)
    orders = await client.heartbeat(env_id, 0)
    assert orders.updating and orders.policy_version == 1
    await client.publish(1)
    assert not (await client.heartbeat(env_id, 0)).updating


async def test_an_update_whose_trainer_died_ends_by_itself(client, env_id):
    await client.publish(1, updating_s=0.1)
    await asyncio.sleep(0.2)
    assert not (await client.heartbeat(env_id, 0)).updating


async def test_the_room_of_an_environment_is_its_share_less_what_it_has_queued(tmp_path):
    async with client_of(config_in(tmp_path, target_groups=8, heartbeat_timeout_s=5)) as client:
        light = (await client.register("light", weight=1)).env_id
        heavy = (await client.register("heavy", weight=3)).env_id
        assert (await client.heartbeat(light, 0)).room == 2
        for n in range(4):
            await client.push(heavy, group_of(f"g{n}"))
        assert (await client.heartbeat(heavy, 0)).room == 2
        async with asyncio.timeout(60):  # a dead environment's share goes to the living
            while (await client.heartbeat(light, 0)).room != 8:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_a_dead_environment_with_a_minimum_does_not_starve_the_trainer(tmp_path):
    async with client_of(config_in(tmp_path, heartbeat_timeout_s=5)) as client:
        await client.register("dead", min_allocation=0.5)
        alive = (await client.register("alive")).env_id
        for n in range(4):
            await client.push(alive, group_of(f"g{n}"))
        assert await client.lease(4, wait_s=0) is None
        assert len((await client.lease(4, wait_s=60)).groups) == 4


async def test_a_minimum_of_a_living_environment_is_kept(client):
    small = (await client.register("small", min_allocation=0.25)).env_id
    large = (await client.register("large")).env_id
    for n in range(8):
        await client.push(large, group_of(f"large{n}"))
    await client.push(small, group_of("small"))
    keys = [leased.group.key for leased in (await client.lease(4)).groups]
    assert keys == ["large0", "large1", "large2", "small"]


async def test_a_minimum_that_is_larger_than_the_weight_can_be_made(tmp_path):
    async with client_of(config_in(tmp_path, target_groups=4)) as client:
        small = (await client.register("small", weight=0.01, min_allocation=0.5)).env_id
        large = (await client.register("large", weight=1)).env_id
        assert await client.lease(8, wait_s=0) is None
        for env_id in (large, small):
            for n in range((await client.heartbeat(env_id, 0)).room):
                await client.push(env_id, group_of(f"{env_id}/{n}"))
        batch = await client.lease(8, wait_s=0)
        assert batch is not None
        assert sum(leased.group.key.startswith(f"{small}/") for leased in batch.groups) == 4


async def test_a_batch_that_the_queue_can_never_hold_is_refused(tmp_path):
    async with client_of(config_in(tmp_path, max_groups=4)) as client:
        with pytest.raises(ApiError, match="never holds more than 4"):
            await client.lease(5, wait_s=0)


async def test_registering_again_keeps_the_id(client):
    first = await client.register("a", instance="run-1")
    assert await client.register("a", instance="run-1") == first
    assert (await client.register("a", instance="run-2")).env_id != first.env_id


async def test_a_full_queue_makes_environments_wait(tmp_path):
    async with client_of(config_in(tmp_path, max_groups=1)) as client:
        env_id = (await client.register("test")).env_id
        await client.push(env_id, group_of("a"))
        pushing = asyncio.ensure_future(client.push(env_id, group_of("b")))
        await asyncio.sleep(0.2)
        assert not pushing.done()
        await client.ack(await client.lease(1))
        assert await pushing


MALFORMED = {
    "no rollouts": group_of("g", rewards=()),
    "a reward that is not finite": group_of("g", rewards=(float("nan"),)),
    "no rows": group_of("g", rows=0),
    "more rollouts than its size": group_of("g", size=1),
    "no key": group_of(""),
}


@pytest.mark.parametrize("group", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_group_is_refused_by_name_and_leaves_the_queue_alone(client, env_id, group):
    with pytest.raises(ApiError, match=r"rollouts|size|key") as refused:
        await client.push(env_id, group)
    assert refused.value.status == 422
    assert (await client.status()).waiting == 0


ROWS = {
    "loss_mask": {"loss_mask": [0]},
    "logprobs": {"logprobs": [None, None, float("inf"), -1.0]},
    "token_ids": {"token_ids": [1, 2, -3, 4]},
    "turn_index": {"turn_index": []},
    "trains no token": {"loss_mask": [0, 0, 0, 0]},
    "first token": {"loss_mask": [1, 0, 0, 1]},
    "only 0 and 1": {"loss_mask": [0, 0, 2, 1]},
    "policy_versions": {"policy_versions": [{"version": "1", "start": 0, "end": 9}]},
    "int": {"token_ids": [1, 2, 3.5, 4]},
    "at most 0": {"logprobs": [None, None, -0.5, 1.0]},
    "a version has more": {"policy_versions": [{"version": "9" * 5000, "start": 0, "end": 4}]},
}


@pytest.mark.parametrize(("named", "changes"), ROWS.items(), ids=ROWS.keys())
async def test_a_malformed_row_is_refused_by_name(client, env_id, named, changes):
    body = msgspec.to_builtins(group_of("g", rewards=(1.0,)))
    body["rollouts"][0]["rows"] = [{**msgspec.to_builtins(row_of([3, 4])), **changes}]
    status, detail = await post(client, f"/v1/groups?env_id={env_id}", msgspec.msgpack.encode(body))
    assert status == 422 and named in detail, detail
    assert (await client.status()).waiting == 0


async def post(client: RolloutClient, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    headers = {"Content-Type": "application/msgpack", **headers}
    async with (
        aiohttp.ClientSession() as http,
        http.post(client.url + path, data=io.BytesIO(body), headers=headers) as response,
    ):
        return response.status, await response.text()


async def test_a_group_may_come_as_json_and_gzipped(client, env_id):
    group = group_of("g", policy_version=0)
    body = gzip.compress(msgspec.json.encode(group))
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    status, detail = await post(client, f"/v1/groups?env_id={env_id}", body, **headers)
    assert status == 200, detail
    assert (await client.lease(1)).groups[0].group == group


async def test_nan_in_json_is_refused(client, env_id):
    body = msgspec.json.encode(group_of("g")).replace(b"1.0", b"NaN")
    status, _ = await post(
        client, f"/v1/groups?env_id={env_id}", body, **{"Content-Type": "application/json"}
    )
    assert status == 400
    assert (await client.status()).waiting == 0


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**30, -1])
async def test_a_version_out_of_bounds_is_refused(client, env_id, number):
    body = json.dumps(msgspec.to_builtins(group_of("g")) | {"policy_version": number}).encode()
    in_json = {"Content-Type": "application/json"}
    status, detail = await post(client, f"/v1/groups?env_id={env_id}", body, **in_json)
    assert status == 422 and "policy_version" in detail
    with pytest.raises(ApiError, match="version"):
        await client.publish(number)
    assert await client.push(env_id, group_of("g")), "what was refused changed nothing"


async def test_integers_that_messagepack_can_not_hold_are_refused(client, env_id):
    body = msgspec.to_builtins(group_of("g")) | {"size": 2**70}
    path, in_json = f"/v1/groups?env_id={env_id}", {"Content-Type": "application/json"}
    assert await post(client, path, json.dumps(body).encode(), **in_json) == (
        422,
        '{"detail":"an integer has more than 64 bits"}',
    )


DEEP = 100_000
NESTED = {
    "/v1/groups?env_id=0": b"\x81\xa6extras\x81\xa1a" + b"\x91" * DEEP + b"\xc0",
    "/scored_data": b'{"tokens":[[1]],"masks":[[1]],"scores":[1],"images":' + b"[" * DEEP,
}


@pytest.mark.parametrize(("path", "body"), NESTED.items(), ids=NESTED.keys())
async def test_a_body_nested_too_deep_is_refused(client, env_id, path, body):
    status, detail = await post(client, path, body)
    assert status == 400 and "recursion" in detail
    assert (await client.status()).waiting == 0


async def test_an_unknown_environment_is_refused(client):
    with pytest.raises(ApiError, match="register first") as refused:
        await client.push(99, group_of("g"))
    assert refused.value.status == 404


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_body_of_100_mb_is_refused_compressed_or_not(client, env_id, encoding):
    body = b"\x00" * (100 * 2**20)
    body = gzip.compress(body, 1) if encoding == "gzip" else body
    headers = {"Content-Encoding": encoding} if encoding == "gzip" else {}
    try:
        status, detail = await post(client, f"/v1/groups?env_id={env_id}", body, **headers)
        assert status == 413, detail
    except aiohttp.ClientConnectionError:
        assert encoding == "identity", "the server may hang up on a body it has refused"
    assert (await client.status()).waiting == 0


async def test_a_body_that_is_not_gzip_is_refused(client, env_id):
    status, _ = await post(client, f"/v1/groups?env_id={env_id}", b"no gzip", **{"Content-Encoding": "gzip"})
    assert status == 400


async def test_refused_pushes_are_counted_and_metrics_are_prometheus_text(client, env_id):
    await post(client, f"/v1/groups?env_id={env_id}", b"\xc1")
    await client.push(env_id, group_of("g"))
    async with aiohttp.ClientSession() as http, http.get(client.url + "/metrics") as response:
        text = await response.text()
    assert 'lachesis_rollout_api_refused_pushes_total{status="400"} 1.0' in text
    assert "lachesis_rollout_api_waiting_groups 1.0" in text


async def test_a_token_is_demanded_of_everyone(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    config = config_in(tmp_path, token_file=token)
    async with running_server(config) as url:
        for given in (None, "wrong"):
            async with RolloutClient(url, given) as client:
                with pytest.raises(ApiError, match="token") as refused:
                    await client.register("test")
                assert refused.value.status == 401
        async with RolloutClient(url, "secret") as client:
            await client.register("test")
        async with aiohttp.ClientSession() as http:
            in_url = url.replace("http://", "http://any:secret@")
            assert (await http.get(in_url + "/v1/status")).status == 200
            assert (await http.get(url + "/healthz")).status == 200


def test_without_a_token_only_loopback_is_listened_on(tmp_path):
    with pytest.raises(ConfigError, match="token_file"):
        config_in(tmp_path, host="0.0.0.0").token()


async def test_without_a_token_another_host_name_is_refused(client):
    async with aiohttp.ClientSession() as http:
        response = await http.get(client.url + "/v1/status", headers={"Host": "evil.example"})
        assert response.status == 403
        assert "Host" in (await response.json())["detail"]


async def test_without_a_token_what_a_web_page_sends_is_refused(client, env_id):
    await client.push(env_id, group_of("g"))
    page = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    status, detail = await post(client, "/v1/batches", b'{"lease_id":"evil","groups":1}', **page)
    assert status == 403 and "Origin" in detail
    assert (await client.status()).leased == 0


async def test_an_address_that_is_none_is_a_clear_error():
    async with RolloutClient("localhost:8000", give_up_after_s=1) as client:
        with pytest.raises(ConfigError, match="localhost:8000 is not an HTTP address"):
            await client.status()


async def test_a_port_that_is_taken_is_a_clear_error(tmp_path):
    async with running_server(config_in(tmp_path)) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigError, match="cannot listen"):
            async with running_server(config_in(tmp_path / "other", port=port)):
                pass


async def test_everything_goes_on_after_a_restart(tmp_path):
    config = config_in(tmp_path)
    async with client_of(config) as client:
        env_id = (await client.register("test", instance="i")).env_id
        await client.publish(3)
        for n in range(3):
            await client.push(env_id, group_of(f"g{n}"))
        held = await client.lease(1, lease_s=60)
    async with client_of(config) as client:
        assert (await client.heartbeat(env_id, 0)).policy_version == 3
        batch = await client.lease(2)
        assert [leased.group.key for leased in batch.groups] == ["g1", "g2"]
        await client.ack(held)
        assert not await client.push(env_id, group_of("g0"))


async def test_stopping_lets_waiting_trainers_go(tmp_path):
    server = running_server(config_in(tmp_path))
    async with RolloutClient(await server.__aenter__()) as client:
        waiting = asyncio.ensure_future(client.lease(1, wait_s=60))
        await asyncio.sleep(0.2)
        await server.__aexit__(None, None, None)
        assert await asyncio.wait_for(waiting, 60) is None


def test_json_and_messagepack_say_the_same():
    group = group_of("g")
    assert json.loads(msgspec.json.encode(group)) == msgspec.msgpack.decode(msgspec.msgpack.encode(group))
