"""Policies: recomputed logprobs equal the sampled ones; adapters leave the base alone; folders load."""

import asyncio

import pytest

from inference.embedded import EmbeddedEngine
from tests.inference.engines.tiny_model import VOCABULARY
from tests.trainers.rows import token_row, training_row
from trainers.grpo import Learner
from trainers.grpo_config import GrpoConfig, LoraConfig
from trainers.hand_over import InProcess, ThroughFolder
from trainers.policy import open_policy
from trajectories.errors import ConfigError
from trajectories.messages import Message
from trajectories.rows import token_rows
from trajectories.turn import SamplingParams, Turn

torch = pytest.importorskip("torch")

NUMERIC_NOISE = 1e-4


@pytest.fixture
def config(tiny_folder, tmp_path):
    return GrpoConfig(model=tiny_folder, output_dir=tmp_path / "run", learning_rate=0.01)


@pytest.fixture(params=["full", "lora"])
def any_config(request, config):
    if request.param == "full":
        return config
    pytest.importorskip("peft")
    return config.model_copy(update={"lora": LoraConfig(rank=4)})


async def sampled_rows(engine, version: str):
    """Rows of three conversations of three turns, sampled by the engine."""

    async def conversation(seed: int):
        ids, turns = [5, 6, 7, seed], []
        for turn in range(3):
            sampling = SamplingParams(max_tokens=6, seed=10 * seed + turn)
            answer = await engine.generate(ids, sampling, session_id=str(seed))
            assert [span.version for span in answer.policy_versions] == [version]
            turns.append(
                Turn(
                    Message.assistant("x"),
                    "stop",
                    sampling,
                    prompt_ids=ids,
                    output_ids=answer.output_ids,
                    output_logprobs=answer.output_logprobs,
                    policy_versions=answer.policy_versions,
                )
            )
            ids = [*ids, *answer.output_ids, seed, turn]
        return token_rows(turns)

    return [row for rows in await asyncio.gather(*map(conversation, range(3))) for row in rows]


def recorded(rows):
    return [logprob for row in rows for logprob in row.logprobs if logprob is not None]


async def test_after_every_hand_over_the_engine_samples_what_the_policy_recomputes(any_config):
    learner = Learner(any_config)
    engine = EmbeddedEngine(any_config.model)
    await engine.start()
    try:
        hand_over = InProcess(engine)
        before = None
        for version in ("0", "1", "2"):
            await hand_over(learner.policy, version)
            rows = await sampled_rows(engine, version)
            assert len(rows) == 3
            assert all(sum(row.loss_mask) == 18 for row in rows)
            logprobs, _ = learner.policy.logprobs(rows)
            assert logprobs.tolist() == pytest.approx(recorded(rows), abs=NUMERIC_NOISE)
            if before is not None:
                moved = learner.policy.logprobs(before)[0].detach() - torch.tensor(recorded(before))
                assert moved.abs().max() > 10 * NUMERIC_NOISE, "the weights did change"
            before = rows
            learner.update([training_row(seed, (-1.0) ** seed) for seed in range(4)])
    finally:
        await engine.close()


async def test_a_folder_handed_over_holds_the_policy(any_config, tmp_path):
    learner = Learner(any_config)
    learner.update([training_row(seed, (-1.0) ** seed) for seed in range(4)])
    engine = EmbeddedEngine(any_config.model)
    await engine.start()
    try:
        hand_over = ThroughFolder(tmp_path / "weights", [engine])
        await hand_over(learner.policy, "1")
        await hand_over(learner.policy, "2")
        rows = await sampled_rows(engine, "2")
    finally:
        await engine.close()
    assert learner.policy.logprobs(rows)[0].tolist() == pytest.approx(recorded(rows), abs=NUMERIC_NOISE)
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["version-2"]


def test_a_saved_learner_goes_on_as_if_it_had_never_stopped(any_config, tmp_path):
    batches = [[training_row(10 * step + i, (-1.0) ** i) for i in range(4)] for step in range(3)]
    whole = Learner(any_config)
    whole.update(batches[0])
    whole.step = 1
    whole.save(tmp_path / "saved")
    for batch in batches[1:]:
        whole.update(batch)

    resumed = Learner(any_config, tmp_path / "saved")
    assert resumed.step == 1
    for batch in batches[1:]:
        resumed.update(batch)
    for name, weight in whole.policy.weights().items():
        assert torch.equal(weight, resumed.policy.weights()[name])


def test_adapters_leave_the_base_as_it_was_and_the_base_is_the_reference(config):
    pytest.importorskip("peft")
    tuned = Learner(config.model_copy(update={"lora": LoraConfig(rank=4), "kl_weight": 0.1}))
    base = open_policy(config, None)
    rows = [token_row(seed) for seed in range(3)]
    for step in range(3):
        tuned.update([training_row(step * 10 + seed, (-1.0) ** seed) for seed in range(4)])
    tuned.policy.weights()

    expected = base.logprobs(rows)[0].detach()
    torch.testing.assert_close(tuned.policy.reference_logprobs(rows), expected, atol=0, rtol=0)
    assert (tuned.policy.logprobs(rows)[0].detach() - expected).abs().max() > 0.01
    assert tuned.policy.weights().keys() == base.weights().keys()


def test_the_full_policys_reference_is_where_the_run_began_also_after_a_resume(config, tmp_path):
    tied = config.model_copy(update={"kl_weight": 0.1})
    learner = Learner(tied)
    learner.update([training_row(seed, (-1.0) ** seed) for seed in range(4)])
    learner.save(tmp_path / "saved")
    rows = [token_row(9)]
    resumed = Learner(tied, tmp_path / "saved")
    expected = open_policy(config, None).logprobs(rows)[0].detach()
    assert torch.equal(resumed.policy.reference_logprobs(rows), expected)
    assert not torch.equal(resumed.policy.logprobs(rows)[0].detach(), expected)


def test_warm_up_raises_the_learning_rate_step_by_step(config):
    learner = Learner(config.model_copy(update={"warmup_steps": 4}))
    rates = []
    for step in range(6):
        learner.step = step
        rates.append(learner.update([training_row(1, 1.0)]).learning_rate)
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_what_cannot_be_loaded_is_a_config_error_that_says_how_to_mend_it(config, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=str(tmp_path)):
        open_policy(config.model_copy(update={"model": tmp_path}), None)
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(ConfigError, match=r"lachesis-rl\[trainers\]"):
        open_policy(config.model_copy(update={"lora": LoraConfig()}), None)


def test_entropy_of_a_uniform_policy_is_the_logarithm_of_its_vocabulary(config):
    policy = open_policy(config, None)
    with torch.no_grad():
        policy.model.lm_head.weight.zero_()
    logprobs, entropy = policy.logprobs([token_row(1)])
    expected = torch.full_like(entropy, VOCABULARY).log()
    torch.testing.assert_close(entropy, expected)
    torch.testing.assert_close(logprobs.detach(), -expected)
