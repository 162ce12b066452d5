"""A trainer on the wire of Atropos beside `serve` of an environment of ours, each a process of its own."""

import asyncio
import json
import os
import sys

import aiohttp
import pytest

from tests.rollouts.api.serving import ROOT, client_of, config_in

torch = pytest.importorskip("torch")


async def start(*command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


@pytest.mark.timeout(300)
async def test_a_trainer_of_atropos_kind_trains_what_serve_pushes(tmp_path, lookup_folder):
    async with client_of(config_in(tmp_path)) as api:
        output = tmp_path / "trained"
        trainer = await start(
            *("-m", "scripts.atropos_trainer", "--url", api.url, "--model", str(lookup_folder)),
            *("--output", str(output), "--steps", "2", "--batch_size", "8", "--learning_rate", "0.01"),
        )
        environment = await start(
            *("tests/trainers/wordy_env.py", "serve", "--serve.url", api.url, "--serve.groups", "4"),
            *("--env.group_size", "4", "--env.generated_items", "16", "--model.path", str(lookup_folder)),
            *("--run.output_dir", str(tmp_path)),
        )
        assert await environment.wait() == 0
        assert await trainer.wait() == 0
        assert (await api.status()).waiting == 0
        async with aiohttp.ClientSession(api.url) as http, http.get("/status") as response:
            assert (await response.json())["current_step"] == 2

    steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [(step["step"], step["rows"]) for step in steps] == [(1, 8), (2, 8)]
    assert all(step["grad_norm"] > 0 for step in steps)
    assert steps[0]["logprob_delta"] < 1e-4, "what the environment sampled is what the trainer recomputes"
    from transformers import AutoModelForCausalLM

    before, after = (AutoModelForCausalLM.from_pretrained(f) for f in (lookup_folder, output / "weights"))
    pairs = zip(before.state_dict().values(), after.state_dict().values(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)
