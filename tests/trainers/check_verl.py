"""verl's own worker over our agent loop; run by `test_other_trainers` where verl is installed."""

import json
from dataclasses import replace
from types import SimpleNamespace

import hydra
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopWorker, _agent_loop_registry
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.rollout_trace import RolloutTraceConfig
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient
from verl.workers.rollout.replica import TokenOutput

from rollouts.config import SandboxConfig
from rollouts.store import TrajectoryStore
from tests.trainers.fates import FATES, REWARDS, Fates, fates_client, run_in
from tests.trainers.lookup_server import LookupServer
from trainers.rollout_maker import open_rollouts
from trainers.verl_loop import VerlAgentLoop, agent_loop_outputs, close_all
from trajectories.errors import ConfigError, ModelError

PROMPT_LENGTH, RESPONSE_LENGTH = 32, 24


class Servers(LookupServer):
    """As verl's ``LLMServerClient``."""

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        assert isinstance(request_id, str)
        ids, logprobs = self.answer(prompt_ids, sampling_params)
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={"global_steps": 7}
        )


class Resuming(FullyAsyncLLMServerClient):
    """verl's own client of a server whose weights change after the first token of each answer."""

    def __init__(self, folder, config):
        super().__init__(config)
        self._plays = LookupServer(folder)
        self._rest = []
        self._step = 6

    async def _acquire_server(self, request_id, **_):
        return "server", SimpleNamespace(generate=SimpleNamespace(remote=self._answer))

    def _release_server(self, server_id, request_id=None):
        pass

    async def _answer(self, *, prompt_ids, sampling_params, **_):
        resumed = bool(self._rest)
        sampled = self._rest or list(zip(*self._plays.answer(prompt_ids, sampling_params), strict=True))
        sampled, self._rest = (sampled, []) if resumed else (sampled[:1], sampled[1:])
        self._step += 1
        return TokenOutput(
            token_ids=[token_id for token_id, _ in sampled],
            log_probs=[logprob for _, logprob in sampled],
            stop_reason="completed" if resumed else "abort",
            extra_fields={"global_steps": self._step},
        )


@pytest.fixture(autouse=True)
async def closed_in_the_end():
    yield
    await close_all()


def config_in(tmp_path):
    """The part of verl's config that a worker reads, and ours as it stands in verl's agent loop file."""
    rollout = {
        "name": "vllm",
        "prompt_length": PROMPT_LENGTH,
        "response_length": RESPONSE_LENGTH,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "calculate_log_probs": True,
        "agent": {"default_agent_loop": "lachesis"},
    }
    ours = {
        "name": "lachesis",
        "_target_": "trainers.verl_loop.VerlAgentLoop",
        "_convert_": "all",
        "environment": "environments.lookup_env.LookupEnv",
        "settings": {
            "env": {"generated_items": 4},
            "run": {"output_dir": str(tmp_path), "name": "verl"},
            "sandbox": {"options": {"warm": 0}},
            "chat_template": "hermes",
        },
    }
    return OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}}), OmegaConf.create(ours)


def worker_of(config, servers, tokenizer):
    """verl's worker, without the parts of it that need GPUs and Ray."""
    worker = object.__new__(AgentLoopWorker)
    worker.config = config
    worker.rollout_config = config.actor_rollout_ref.rollout
    worker.llm_client = servers
    worker.tokenizer, worker.processor, worker.hf_model_type = tokenizer, None, "llama"
    worker.dataset_cls, worker.tools = None, []
    worker.reward_loop_worker_handles = None
    worker.distillation_enabled = False
    worker.mm_processor_kwargs = {}
    return worker


async def test_verls_worker_gets_what_was_sampled(lookup_folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(lookup_folder)
    tokenizer.pad_token = tokenizer.eos_token
    config, ours = config_in(tmp_path)
    _agent_loop_registry["lachesis"] = ours
    servers = Servers(lookup_folder)
    worker = worker_of(config, servers, tokenizer)
    keys = ["0-0", "0-0", "0-1"]
    rows = {
        "raw_prompt": [[{"role": "user", "content": "?"}] for _ in keys],
        "extra_info": [{"item_key": key} for key in keys],
        "index": [0, 0, 1],
        "uid": ["a", "a", "b"],
    }
    columns = {name: np.array([*values, None], dtype=object)[:-1] for name, values in rows.items()}
    RolloutTraceConfig.get_instance().max_samples_per_step_per_worker = None
    batch = await worker.generate_sequences(
        DataProto(non_tensor_batch=columns, meta_info={"global_steps": 3})
    )

    (folder,) = tmp_path.glob("verl-*")
    records = [json.loads(line) for line in (folder / "trajectories.jsonl").read_text().splitlines()]
    assert sorted(record["item_key"] for record in records) == sorted(keys)
    assert len({record["trajectory_id"] for record in records}) == 3
    assert batch.batch["rm_scores"].sum(1).tolist() == [1.0, 1.0, 1.0]
    for index in range(3):
        mask = batch.batch["response_mask"][index].bool()
        attended = batch.batch["attention_mask"][index][PROMPT_LENGTH:].bool()
        text = tokenizer.decode(batch.batch["responses"][index][mask])
        assert text.count("<|im_end|>") == 2 and "<tool_call>" in text
        assert "<tool_response>" in tokenizer.decode(batch.batch["responses"][index][attended & ~mask])
        logprobs = batch.batch["rollout_log_probs"][index]
        assert logprobs[mask].tolist() == [-0.25, -0.5, -0.75, -1.0, -0.25, -0.5]
        assert (logprobs[~mask] == 0).all()
    assert batch.non_tensor_batch["min_global_steps"].tolist() == [7, 7, 7]
    assert all(params["logprobs"] is True and params["stop_token_ids"] for params in servers.sampling)
    assert all(params["temperature"] == 1.0 and "seed" in params for params in servers.sampling)


@pytest.fixture
async def fates(tmp_path):
    async with open_rollouts(Fates(), fates_client(), SandboxConfig(), run_in(tmp_path)) as rollouts:
        yield {fate: await rollouts.make("g", "a", n) for n, fate in enumerate(FATES)}


async def test_each_token_row_is_an_output_of_verl_and_what_can_not_be_trained_is_none(fates):
    outputs = {fate: agent_loop_outputs(trajectory, 4, 8) for fate, trajectory in fates.items()}
    assert [len(outputs[fate]) for fate in FATES] == [1, 2, 0, 0]
    first, second = (output.as_dict() for output in outputs["rows"])
    assert first["responses"].tolist() == [3, 4, 5] and second["responses"].tolist() == [6, 7]
    assert first["prompts"].tolist() == [1, 2] and second["prompts"].tolist() == [9, 9]
    assert first["rollout_log_probs"].tolist() == [-1.5, -2.0, -2.5]
    assert [output["rm_scores"][-1] for output in (first, second)] == [REWARDS["rows"]] * 2


async def test_in_verls_baseline_a_rollout_counts_once_whatever_its_rows(fates):
    sessions = [agent_loop_outputs(fates[fate], 4, 8) for fate in ("good", "rows")]
    outputs = [output for session in sessions for output in session]
    mask = torch.zeros(len(outputs), 3, dtype=torch.int64)
    scores = torch.zeros(len(outputs), 3)
    for index, output in enumerate(outputs):
        mask[index, : len(output.response_mask)] = torch.tensor(output.response_mask)
        scores[index, len(output.response_mask) - 1] = output.reward_score
    data = DataProto.from_dict(
        tensors={"response_mask": mask, "token_level_rewards": scores},
        non_tensors={"uid": np.array(["a"] * len(outputs), dtype=object)},
    )
    keys = [f"a_{n}_{index}" for n, session in enumerate(sessions) for index in range(len(session))]
    compute_advantage_for_multi_trajectories(data, keys, AdvantageEstimator.GRPO)
    good, first, second = data.batch["advantages"].tolist()
    assert good == pytest.approx([0.7071] * 3, abs=1e-3), "one of two rollouts, not one of three rows"
    assert first == pytest.approx([-0.7071] * 3, abs=1e-3)
    assert second == pytest.approx([-0.7071, -0.7071, 0], abs=1e-3)


async def test_what_verl_has_no_room_for_is_cut_and_counted_or_refused(fates):
    (output,) = agent_loop_outputs(fates["good"], 4, 2)
    assert output.response_ids == [3, 4] and output.extra_fields["tokens_left_out"] == 1
    with pytest.raises(ConfigError, match="prompt_length"):
        agent_loop_outputs(fates["good"], 1, 8)


async def test_a_later_row_whose_prompt_verl_has_no_room_for_is_left_out_and_counted(fates):
    longer = replace(fates["rows"].turns[1], prompt_ids=[9] * 5)
    rows = replace(fates["rows"], turns=[fates["rows"].turns[0], longer])
    (output,) = agent_loop_outputs(rows, 4, 8)
    assert output.response_ids == [3, 4, 5] and output.extra_fields["rows_left_out"] == 1
    assert [each.extra_fields["rows_left_out"] for each in agent_loop_outputs(rows, 5, 8)] == [0, 0]


def loop_over(servers, config, ours, folder):
    return hydra.utils.instantiate(
        ours,
        trainer_config=SimpleNamespace(config=config),
        server_manager=servers,
        tokenizer=AutoTokenizer.from_pretrained(folder),
    )


async def test_an_answer_resumed_over_a_weight_update_has_the_oldest_and_the_newest_version(
    lookup_folder, tmp_path
):
    config, ours = config_in(tmp_path)
    loop = loop_over(Resuming(lookup_folder, config), config, ours, lookup_folder)
    (output,) = await loop.run({}, session_id=0, extra_info={"item_key": "0-2"}, uid="c")
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (7, 10)
    await close_all()
    (folder,) = tmp_path.glob("verl-*")
    with TrajectoryStore(folder / "trajectories.jsonl") as store:
        (record,) = store
    spans = [[(span.version, span.start, span.end) for span in turn.policy_versions] for turn in record.turns]
    assert spans == [[("7", 0, 3), ("8", 3, 4)], [("9", 0, 1), ("10", 1, 2)]]


@pytest.mark.parametrize("reason", ["aborted", "abort"])
async def test_what_verl_aborted_is_never_taken_for_what_the_model_said(lookup_folder, tmp_path, reason):
    class Aborting(Servers):
        async def generate(self, request_id, **asked):
            output = await super().generate(request_id, **asked)
            output.stop_reason = reason
            return output

    config, ours = config_in(tmp_path)
    ours.settings.run.max_attempts = 1
    loop = loop_over(Aborting(lookup_folder), config, ours, lookup_folder)
    assert await loop.run({}, session_id=0, extra_info={"item_key": "0-2"}, uid="c") == []


@pytest.mark.parametrize("newer", [False, True])
async def test_a_failed_rollout_is_left_out_where_verl_can_and_raises_where_it_can_not(
    lookup_folder, tmp_path, newer
):
    class Broken(Servers):
        async def generate(self, request_id, **_):
            raise OSError("out of memory")

    config, ours = config_in(tmp_path)
    ours.settings.run.max_attempts = 1
    loop = loop_over(Broken(lookup_folder), config, ours, lookup_folder)
    fields = {"extra_info": {"item_key": "0-2"}, "uid": "c"}
    if newer:
        assert await loop.run({}, session_id=0, **fields) == []
    else:
        with pytest.raises(ModelError, match="out of memory"):
            await loop.run({}, **fields)


def test_verl_asks_an_agent_loop_for_no_more_than_we_have():
    assert AgentLoopBase.__abstractmethods__ == {"run"} <= set(vars(VerlAgentLoop))
