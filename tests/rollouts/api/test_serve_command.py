"""`serve` as users run it: a real model, real sandboxes, an embedded rollout API."""

import json
from pathlib import Path

import pytest

from rollouts.api.client import RolloutClient
from rollouts.api.server import running_server
from rollouts.api.settings import ServerConfig
from tests.rollouts.test_command_line import lachesis

SMALL = {
    "--env.group_size": "2",
    "--env.tier": "easy",
    "--env.max_turns": "2",
    "--env.sampling.max_tokens": "16",
    "--run.max_concurrent": "4",
    "--serve.server.port": "0",
    "--serve.groups": "2",
}


def flags(model_folder: Path, tmp_path: Path, **more: str) -> list[str]:
    named = {
        **SMALL,
        "--model.path": str(model_folder),
        "--run.output_dir": str(tmp_path),
        "--serve.server.store": str(tmp_path / "rollouts.db"),
        **more,
    }
    return [part for pair in named.items() for part in pair]


@pytest.mark.model
async def test_serve_starts_its_own_rollout_api_says_so_and_leaves_groups_a_trainer_can_take(
    tmp_path, model_folder
):
    evaluating = {"--serve.evaluate_every": "1", "--serve.evaluation_items": "1"}
    code, out, err = await lachesis("serve", *flags(model_folder, tmp_path, **evaluating))
    assert code == 0, err
    assert "rollout API started on http://127.0.0.1:" in out
    assert "groups pushed" in out
    report = json.loads((tmp_path / "terminal-serve" / "evaluation-0.json").read_text())
    assert set(report) == {"reward", "pass@1", "pass@2"}
    config = ServerConfig(port=0, store=str(tmp_path / "rollouts.db"))
    async with running_server(config) as url, RolloutClient(url) as client:
        batch = await client.lease(2, wait_s=0)
    assert batch is not None
    rows = [row for leased in batch.groups for rollout in leased.group.rollouts for row in rollout.rows]
    assert len(rows) >= 4
    for row in rows:
        sampled = [value for value, trained in zip(row.logprobs, row.loss_mask, strict=True) if trained]
        assert sampled and all(value is not None and value <= 0 for value in sampled)
