"""TRL's own trainer over our rollouts: it trains the tokens that were sampled, by the weights it has."""

import pytest

from environments.lookup_env import LookupEnvConfig
from inference.chat_template import OURS
from inference.embedded import EmbeddedEngine
from inference.managed import ManagedClient
from rollouts.config import RunConfig
from rollouts.store import TrajectoryStore
from tests.trainers.fates import Fates, fates_client, run_in
from tests.trainers.wordy_env import Wordy
from trainers.trl_rollouts import TrlRollouts
from trajectories.errors import ConfigError

torch = pytest.importorskip("torch")
GROUP = 4

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'", "ignore::FutureWarning")


def embedded(folder, tmp_path, env_class=Wordy):
    engine = EmbeddedEngine(folder, threads=1)
    env = env_class(LookupEnvConfig(generated_items=16))
    client = ManagedClient(engine, folder, chat_template=OURS)
    return TrlRollouts(env, client, engine, run=RunConfig(output_dir=tmp_path, name="run"))


class Versions:
    """An engine that notes which weights it was given."""

    def __init__(self):
        self.versions = []

    async def update_weights(self, weights, version):
        self.versions.append(version)


def trained(folder, rollouts, tmp_path, options=None, **settings):
    from tests.trainers.trl_trainer import SpyingTrainer, cpu_config

    trainer = SpyingTrainer(
        model=str(folder),
        args=cpu_config(tmp_path, **settings),
        train_dataset=rollouts.train_dataset,
        rollout_func=rollouts,
        reward_funcs=rollouts.reward,
        **(options or {}),
    )
    trainer.train()
    return trainer


def sequences(batch, values):
    """The unpadded rows of one of a batch's tensors over completions."""
    lengths = batch["completion_mask"].sum(1).tolist()
    return [row[:length].tolist() for row, length in zip(batch[values], lengths, strict=True)]


def test_trl_trains_the_ids_logprobs_and_masks_that_were_sampled_by_the_weights_it_has(
    lookup_folder, tmp_path
):
    with embedded(lookup_folder, tmp_path) as rollouts:
        trainer = trained(lookup_folder, rollouts, tmp_path)

    with TrajectoryStore(tmp_path / "run" / "trajectories.jsonl") as store:
        records = list(store)
    assert len(records) == 3 * 2 * GROUP
    assert {len(record.turns) for record in records} == {1, 2}, "some call the tool and some do not"
    of_step = [[r for r in records if r.group_id.startswith(f"step-{step}/")] for step in range(3)]
    for step, (batch, made) in enumerate(zip(trainer.batches, of_step, strict=True)):
        order = {tuple(r.rows()[0].token_ids): r for r in made}
        for index, completion in enumerate(sequences(batch, "completion_ids")):
            prompt = batch["prompt_ids"][index][batch["prompt_mask"][index].bool()].tolist()
            (row,) = order[(*prompt, *completion)].rows()
            start = row.loss_mask.index(1)
            assert len(prompt) == start
            assert sequences(batch, "tool_mask")[index] == row.loss_mask[start:]
            sampled = batch["tool_mask"][index][: len(completion)].bool()
            given = batch["sampling_per_token_logps"][index][: len(completion)]
            expected = [value for value in row.logprobs if value is not None]
            assert given[sampled].tolist() == pytest.approx(expected, abs=1e-6)
            assert given[~sampled].isnan().all(), "nothing is made up where nothing was sampled"
            recomputed = batch["recomputed"][index][: len(completion)]
            assert (recomputed - given)[sampled].abs().max() < 1e-4
            assert {span.version for span in row.policy_versions} == {str(step)}
    stale = trainer.batches[-1]["by_first_weights"] - trainer.batches[-1]["sampling_per_token_logps"]
    assert stale.nan_to_num().abs().max() > 0.01, (
        "the weights have changed since, or this would prove nothing"
    )


def test_what_the_world_failed_and_what_says_nothing_is_neither_trained_nor_part_of_the_baseline(
    lookup_folder, tmp_path
):
    settings = {"per_device_train_batch_size": GROUP, "max_steps": 1, "beta": 0.1}
    with TrlRollouts(Fates(), fates_client(), Versions(), run=run_in(tmp_path)) as rollouts:
        trainer = trained(lookup_folder, rollouts, tmp_path, **settings)

    (batch,) = trainer.batches
    assert sequences(batch, "completion_ids")[:2] == [[3, 4, 5], [3, 4, 5]]
    assert sequences(batch, "tool_mask") == [[1, 1, 1], [1, 1, 1], [0], [0]]
    good, rows, silent, failed = batch["advantages"].tolist()
    assert good == pytest.approx(-rows) and good > 0.5, "the baseline is that of the two"
    assert (silent, failed) == (0, 0)
    (metrics,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert metrics["reward"] == 0.75
    assert metrics["rollouts/untrainable"] == 2
    assert metrics["rollouts/rows_left_out"] == 1


def test_rollouts_are_sampled_as_the_trainer_is_set(lookup_folder, tmp_path):
    settings = {"per_device_train_batch_size": GROUP, "max_steps": 1, "temperature": 0.5}
    settings["max_completion_length"] = 3
    with embedded(lookup_folder, tmp_path) as rollouts:
        trainer = trained(lookup_folder, rollouts, tmp_path, **settings)
    with TrajectoryStore(tmp_path / "run" / "trajectories.jsonl") as store:
        sampled = [turn.sampling for record in store for turn in record.turns]
    assert {(sampling.temperature, sampling.max_tokens) for sampling in sampled} == {(0.5, 3)}
    (batch,) = trainer.batches
    assert batch["sampling_per_token_logps"][batch["completion_mask"].bool()].isnan().all(), (
        "logprobs of the model's distribution are not passed off as those of the one drawn from"
    )


@pytest.mark.parametrize("unknown", [{"min_p": 0.1}, {"repetition_penalty": 1.2}])
def test_sampling_that_environments_do_not_offer_is_refused(lookup_folder, tmp_path, unknown):
    with embedded(lookup_folder, tmp_path) as rollouts, pytest.raises(ConfigError, match=next(iter(unknown))):
        trained(lookup_folder, rollouts, tmp_path, **unknown)


def test_trl_trains_an_adapter_and_its_merged_weights_sample(lookup_folder, tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    with embedded(lookup_folder, tmp_path) as rollouts:
        trainer = trained(
            lookup_folder, rollouts, tmp_path, {"peft_config": lora}, max_steps=2, learning_rate=0.1
        )
    last = trainer.batches[-1]
    assert (last["recomputed"] - last["sampling_per_token_logps"]).nan_to_num().abs().max() < 1e-4
    stale = last["by_first_weights"] - last["sampling_per_token_logps"]
    assert stale.nan_to_num().abs().max() > 0.01


class Evaluated(Wordy):
    """Has items for evaluation that training never sees."""

    async def setup(self):
        await super().setup()
        self.items, self.eval_items = self.items[:8], self.items[8:12]


def test_trl_evaluates_on_the_evaluation_items(lookup_folder, tmp_path):
    settings = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    with embedded(lookup_folder, tmp_path, Evaluated) as rollouts:
        options = {"eval_dataset": rollouts.eval_dataset}
        trainer = trained(lookup_folder, rollouts, tmp_path, options, **settings)
    (evaluation,) = [entry for entry in trainer.state.log_history if "eval_reward" in entry]
    with TrajectoryStore(tmp_path / "run" / "trajectories.jsonl") as store:
        held_out = [record for record in store if record.item_key in {f"0-{n}" for n in range(8, 12)}]
    assert len(held_out) == 4 * GROUP
    mean = sum(record.reward for record in held_out) / len(held_out)
    assert evaluation["eval_reward"] == pytest.approx(mean, rel=1e-4)
    assert {span.version for r in held_out for row in r.rows() for span in row.policy_versions} == {"1"}
