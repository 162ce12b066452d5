"""SkyRL's own types and checks over our generator; run by `test_other_trainers` where SkyRL is installed."""

import json
import typing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_vllm_sampling_params
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage
from skyrl.train.config.config import SamplingParams
from skyrl.train.generators.base import GeneratorInterface, GeneratorOutput, TrajectoryID
from skyrl.train.generators.utils import (
    concatenate_generator_outputs,
    get_metrics_from_generator_output,
    prepare_generator_input,
)
from skyrl.train.utils.trainer_utils import validate_generator_output

from environments.lookup_env import LookupEnv, LookupEnvConfig
from rollouts.config import RunConfig, SandboxConfig
from tests.trainers.fates import FATES, REWARDS, Fates, fates_client, run_in
from tests.trainers.lookup_server import LookupServer
from trainers.rollout_maker import open_rollouts
from trainers.skyrl_generator import SkyRLGenerator, generator_output
from trajectories.errors import ConfigError


class Inference(LookupServer):
    """As SkyRL's ``InferenceEngineInterface``."""

    async def generate(self, input_batch, model=None):
        (prompt_ids,) = input_batch["prompt_token_ids"]
        ids, logprobs = self.answer(prompt_ids, input_batch["sampling_params"])
        return {
            "responses": ["?"],
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [logprobs],
        }


def batch_of(keys, sampling):
    rows = [{"prompt": "?", "env_class": None, "env_extras": {"item_key": key}, "uid": key} for key in keys]
    return prepare_generator_input(rows, 2, sampling, "lachesis", "train", 3)


async def test_skyrl_gets_what_was_sampled(lookup_folder, tmp_path):
    inference = Inference(lookup_folder)
    generator = SkyRLGenerator(
        LookupEnv(LookupEnvConfig(generated_items=4)),
        inference,
        str(lookup_folder),
        64,
        step_wise=False,
        sandbox=SandboxConfig(options={"warm": 0}),
        run=RunConfig(output_dir=tmp_path, name="skyrl"),
    )
    sampling = get_vllm_sampling_params(SamplingParams(max_generate_length=16))
    batch, uids = batch_of(["0-1", "0-0"], sampling)
    try:
        output = await generator.generate(batch)
        with pytest.raises(ConfigError, match="min_p"):
            await generator.generate({**batch, "sampling_params": {"min_p": 0.5}})
    finally:
        await generator.close()

    validate_generator_output(len(batch["prompts"]), output)
    assert get_metrics_from_generator_output(output, uids)["avg_score"] == 1.0
    assert output["trajectory_ids"] == batch["trajectory_ids"]
    assert output["stop_reasons"] == ["stop"] * 4
    records = [
        json.loads(line) for line in (tmp_path / "skyrl" / "trajectories.jsonl").read_text().splitlines()
    ]
    assert sorted(record["item_key"] for record in records) == ["0-0", "0-0", "0-1", "0-1"]
    for ids, mask, logprobs in zip(
        output["response_ids"], output["loss_masks"], output["rollout_logprobs"], strict=True
    ):
        assert [value for value, sampled in zip(logprobs, mask, strict=True) if sampled] == [
            *(-0.25, -0.5, -0.75, -1.0),
            *(-0.25, -0.5),
        ]
        assert mask[0] == mask[-1] == 1 and 0 in mask and len(ids) == len(mask)
    assert all(params["max_tokens"] == 16 and "seed" in params for params in inference.sampling)


@pytest.fixture
async def fates(tmp_path):
    async with open_rollouts(Fates(), fates_client(), SandboxConfig(), run_in(tmp_path)) as rollouts:
        yield [await rollouts.make("g", "a", n) for n in range(len(FATES))]


IDS = [TrajectoryID("a", n) for n in range(len(FATES))]
MEAN = (REWARDS["good"] + REWARDS["rows"]) / 2


async def test_what_can_not_be_trained_is_masked_and_leaves_the_mean_of_its_group_as_it_is(fates):
    output = generator_output(IDS, fates, step_wise=False)
    validate_generator_output(len(IDS), output)
    assert output["rewards"] == [1.0, 0.5, MEAN, MEAN]
    assert output["loss_masks"] == [[1, 1, 1], [1, 1, 1], [0], [0]]
    assert output["rollout_metrics"] == {"rollouts/untrainable": 2, "rollouts/rows_left_out": 1}


@pytest.mark.parametrize("step_wise", [False, True])
async def test_of_a_group_in_which_all_failed_nothing_is_trained(fates, step_wise):
    output = concatenate_generator_outputs(
        [generator_output(IDS[2:], fates[2:], step_wise=step_wise)], step_wise=step_wise
    )
    assert output["loss_masks"] == [[0], [0]] and output["rewards"] == [0.0, 0.0]
    assert output["rollout_metrics"]["rollouts/untrainable"] == 2
    scores = torch.tensor(output["rewards"]).unsqueeze(1)
    advantages, _ = compute_grpo_outcome_advantage(scores, torch.ones(2, 1), np.array(["a", "a"]))
    assert advantages.tolist() == [[0.0], [0.0]]


async def test_step_wise_a_rollout_of_several_rows_is_handed_over_whole(fates):
    output = generator_output(IDS, fates, step_wise=True)
    validate_generator_output(len(IDS), output, step_wise=True)
    joined = concatenate_generator_outputs([output], step_wise=True)
    assert {len(values) for values in joined.values() if isinstance(values, list)} == {5}
    times = [fate.timings.total_s for fate in fates]
    assert output["trajectory_generation_times"] == [times[n] for n in (0, 1, 1, 2, 3)]
    assert [each.repetition_id for each in output["trajectory_ids"]] == [0, 1, 1, 2, 3]
    assert output["is_last_step"] == [True, False, True, True, True]
    assert output["response_ids"][1:3] == [[3, 4, 5], [6, 7]]
    assert output["prompt_token_ids"][1:3] == [[1, 2], [9, 9]]
    assert output["rollout_metrics"]["rollouts/rows_left_out"] == 0


async def test_a_group_without_any_score_takes_the_mean_of_the_batch(fates):
    ids = [SimpleNamespace(instance_id="ab"[n // 2]) for n in range(4)]
    assert generator_output(ids, fates, step_wise=False)["rewards"] == [1.0, 0.5, MEAN, MEAN]


async def test_what_we_return_is_in_skyrls_type_and_lacks_nothing_it_has_to_have(fates):
    assert GeneratorInterface.__abstractmethods__ == {"generate"} <= set(vars(SkyRLGenerator))
    ours, theirs = generator_output(IDS, fates, step_wise=True), GeneratorOutput.__annotations__
    assert set(ours) <= set(theirs)
    optional = {name for name, kind in theirs.items() if type(None) in typing.get_args(kind)}
    assert set(theirs) - optional <= set(ours)
