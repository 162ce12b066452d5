"""Rollouts as slime takes them, against a stand-in of its types: slime itself is on no package index."""

import inspect
from collections import Counter
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from environments.lookup_env import LookupEnv, LookupEnvConfig
from inference.fake_server import FakeServer
from inference.scripted_engine import ScriptedEngine
from rollouts.config import RunConfig, SandboxConfig
from rollouts.store import TrajectoryStore
from tests.trainers.fates import FATES, REWARDS, Fates, fates_client, run_in
from tests.trainers.lookup_server import LookupServer
from tests.trainers.slime_sample import Sample
from trainers.rollout_maker import open_rollouts
from trainers.slime_rollouts import SlimeRollouts, advantages, evaluated, fill_failed, samples_of
from trajectories.errors import ConfigError, ModelError

Status = Sample.Status


async def test_slime_gets_what_its_router_sampled(lookup_folder, tmp_path):
    plays = LookupServer(lookup_folder)
    engine = ScriptedEngine(lambda prompt_ids: plays.answer(prompt_ids, {})[0], policy_version="7")
    generate, restarted = [
        SlimeRollouts(
            LookupEnv(LookupEnvConfig(generated_items=2)),
            SandboxConfig(options={"warm": 0}),
            RunConfig(output_dir=tmp_path, name="slime"),
        )
        for _ in range(2)
    ]
    async with FakeServer(engine, "sglang") as server:
        address = urlsplit(server.url)
        args = SimpleNamespace(
            hf_checkpoint=str(lookup_folder),
            sglang_router_ip=address.hostname,
            sglang_router_port=address.port,
            rollout_max_context_len=64,
        )
        sample = Sample(group_index=3, index=12, metadata={"item_key": "0-1"})
        params = {"max_new_tokens": 16, "temperature": 1.0, "top_p": 1.0, "top_k": -1}
        try:
            made = await generate(args, sample, params)
            with pytest.raises(ConfigError, match="repetition_penalty"):
                await generate(args, sample, {**params, "repetition_penalty": 1.1})
            assert "evaluation" in inspect.signature(generate).parameters, "slime looks for it"
            asked = [Sample(index=n % 2, metadata={"item_key": "0-1"}) for n in range(4)]
            tested = [await generate(args, each, params, evaluation=True) for each in asked]
            await generate.close()
            tested.append(await restarted(args, asked[0], params, evaluation=True))
        finally:
            await generate.close()
            await restarted.close()
        assert {call["sampling_params"]["max_new_tokens"] for call in server.calls} == {16}

    assert [each.reward for each in tested] == [1.0] * 5
    with TrajectoryStore(tmp_path / "slime" / "trajectories.jsonl") as store:
        records = list(store)
    assert len({record.trajectory_id for record in records}) == len({r.seed for r in records}) == 6
    assert sorted(Counter(record.group_id for record in records).values()) == [1, 1, 2, 2]
    assert (made.status, made.reward, made.rollout_id) == (Status.COMPLETED, 1.0, 12)
    assert made.weight_versions == ["7"]
    prompt = len(made.tokens) - made.response_length
    assert made.tokens[:prompt] == server.calls[0]["input_ids"]
    assert made.tokens[: len(server.calls[1]["input_ids"])] == server.calls[1]["input_ids"]
    assert len(made.loss_mask) == len(made.rollout_log_probs) == made.response_length
    assert made.loss_mask[:4] == [1] * 4 and made.loss_mask[-2:] == [1] * 2 and sum(made.loss_mask) == 6
    unsampled = [
        logprob
        for logprob, sampled in zip(made.rollout_log_probs, made.loss_mask, strict=True)
        if not sampled
    ]
    assert set(unsampled) == {0.0}


async def test_a_context_without_bounds_is_refused(lookup_folder):
    args = SimpleNamespace(rollout_max_context_len=None, hf_checkpoint=str(lookup_folder))
    with pytest.raises(ConfigError, match="rollout-max-context-len"):
        await SlimeRollouts(Fates())(args, Sample(metadata={"item_key": "a"}), {})


@pytest.fixture
async def trajectories(tmp_path):
    """A group whose rollouts meet every fate."""
    async with open_rollouts(Fates(), fates_client(), SandboxConfig(), run_in(tmp_path)) as rollouts:
        return [await rollouts.make("g", "a", n) for n in range(len(FATES))]


@pytest.fixture
def group(trajectories):
    """Their samples."""
    return [samples_of(Sample(group_index=0, index=n), each) for n, each in enumerate(trajectories)]


def flat(group):
    return [sample for each in group for sample in (each if isinstance(each, list) else [each])]


async def test_a_rollout_of_several_rows_is_several_samples_of_one_rollout(group):
    _, rows, silent, failed = group
    assert [sample.tokens for sample in rows] == [[1, 2, 3, 4, 5], [9, 9, 6, 7]]
    assert [sample.loss_mask for sample in rows] == [[1, 1, 1], [1, 1]]
    assert [sample.rollout_id for sample in flat(group)] == [0, 1, 1, 2, 3]
    assert [sample.status for sample in flat(group)] == [Status.COMPLETED] * 3 + [Status.ABORTED] * 2
    for sample in (silent, failed):
        assert sample.remove_sample and sample.reward is None and sample.loss_mask == [0]


async def test_what_slime_can_not_leave_out_gets_the_mean_of_its_group_and_no_advantage(group):
    assert fill_failed(None, group)
    mean = (REWARDS["good"] + REWARDS["rows"]) / 2
    raw, made = advantages(None, flat(group))
    assert raw == [1.0, 0.5, 0.5, mean, mean]
    assert made == [1.0, -1.0, -1.0, 0.0, 0.0], "each rollout counts once, whatever its rows"


async def test_a_group_without_any_score_is_dropped(group):
    assert not fill_failed(None, group[2:])


async def test_in_an_evaluation_each_rollout_counts_once_and_a_failed_one_ends_it(trajectories):
    *scored, failed = trajectories
    assert [evaluated(Sample(index=0), each).reward for each in scored] == list(REWARDS.values())
    with pytest.raises(ModelError, match="the server is gone"):
        evaluated(Sample(index=0), failed)


async def test_groups_are_compared_among_themselves(group):
    other = [
        Sample(group_index=1, index=n, rollout_id=n, reward=reward) for n, reward in ((8, 5.0), (9, 7.0))
    ]
    _, made = advantages(None, [*flat(group[:2]), *other])
    assert made == [1.0, -1.0, -1.0, -1.0, 1.0]
