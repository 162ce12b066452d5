"""The main job against a real vLLM server, on both of its paths; both give the same kind of record."""

import json

import msgspec
import pytest

from tests.real_parts import ON_VLLM
from tests.rollouts.test_command_line import kept, lachesis

pytestmark = [*ON_VLLM, pytest.mark.model]

SIZE = "--run.groups 4 --env.group_size 2 --env.tier easy --env.max_turns 3 --env.sampling.max_tokens 48"
STEER = "--env.worked_examples 3 --env.toolsets terminal --env.turn_timeout_s 900"


def first_turn(tmp_path, name):
    line = (tmp_path / name / "trajectories.jsonl").read_bytes().splitlines()[0]
    return msgspec.json.decode(line)["turns"][0]


async def test_native_tool_calls_and_token_sessions_give_the_same_record(tmp_path, vllm_url, model_folder):
    paths = {
        "native": ["--model.kind", "openai", "--model.base_url", f"{vllm_url}/v1"],
        "tokens": [
            "--model.kind",
            "managed",
            "--model.base_url",
            vllm_url,
            "--model.tokenizer",
            str(model_folder),
        ],
    }
    for name, model in paths.items():
        flags = [*model, *SIZE.split(), *STEER.split(), "--run.name", name, "--run.output_dir", str(tmp_path)]
        code, _, err = await lachesis("process", *flags)
        assert code == 0, err
        trajectories = kept(tmp_path, name)
        assert len(trajectories) == 8
        assert all(t.error is None and t.reward is not None for t in trajectories)
        assert any(t.turns[0].message.tool_calls for t in trajectories)
        for turn in (turn for t in trajectories for turn in t.turns):
            assert turn.output_ids
            assert len(turn.output_ids) == len(turn.output_logprobs)
            assert all(logprob <= 0 for logprob in turn.output_logprobs)
        rows = (tmp_path / name / "sharegpt.jsonl").read_text().splitlines()
        assert {row["from"] for line in rows for row in json.loads(line)["conversations"]} >= {
            "system",
            "human",
            "gpt",
        }
    assert first_turn(tmp_path, "native").keys() == first_turn(tmp_path, "tokens").keys()
