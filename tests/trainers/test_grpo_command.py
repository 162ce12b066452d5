"""The command: groups over HTTP from a rollout API, weights through a folder to a server."""

import json

import pytest
import yaml

from rollouts.api.client import RolloutClient
from rollouts.api.server import running_server
from rollouts.api.settings import ServerConfig
from tests.inference.engines.test_vllm_weights import DONE, server
from tests.trainers.rows import scored_group
from trainers.grpo_command import GrpoCommand, main, read_command, run

pytest.importorskip("torch")


async def test_groups_come_from_the_api_and_weights_go_to_the_server(tiny_folder, tmp_path):
    api = ServerConfig(port=0, store=str(tmp_path / "queue.db"))
    async with running_server(api) as url, RolloutClient(url) as client, server(DONE) as (vllm, seen):
        environment = await client.register("test")
        for index in range(4):
            await client.push(environment.env_id, scored_group(f"g{index}", [1.0, 0.0]))
        settings = {
            "grpo": {"model": tiny_folder, "output_dir": tmp_path / "run", "steps": 2, "groups_per_step": 2},
            "rollouts": {"url": url},
            "vllm": {"urls": [vllm]},
        }
        await run(GrpoCommand.model_validate(settings))
        status = await client.status()

    assert (status.acked, status.waiting, status.leased) == (4, 0, 0)
    assert (status.policy_version, status.updating) == (2, False)
    handed = [body["kwargs"]["weights_path"] for path, _, body in seen if path == "/collective_rpc"]
    assert handed == [str(tmp_path / "run" / "weights" / f"version-{version}") for version in range(3)]
    assert (tmp_path / "run" / "weights" / "version-2" / "model.safetensors").is_file()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["groups"] for line in lines] == [2, 2]


def test_a_setting_that_does_not_exist_is_named(tmp_path, capsys):
    config = tmp_path / "grpo.yaml"
    grpo = {"model": "m", "output_dir": "o", "stepz": 2}
    config.write_text(yaml.safe_dump({"grpo": grpo, "vllm": {"urls": ["http://x"]}}))
    assert main(["--config", str(config)]) == 2
    assert "grpo.stepz" in capsys.readouterr().err


def test_an_address_that_is_none_is_named(tmp_path, capsys):
    config = tmp_path / "grpo.yaml"
    config.write_text("grpo: {model: m, output_dir: o}\nvllm: {urls: ['localhost:8000']}\n")
    assert main(["--config", str(config)]) == 2
    assert "vllm.urls.0" in capsys.readouterr().err


def test_a_file_that_is_missing_is_named(tmp_path, capsys):
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "value"), [("device", "cuda:99"), ("device", "abacus"), ("dtype", "cat")]
)
def test_what_can_not_be_computed_with_is_named(tiny_folder, tmp_path, capsys, setting, value):
    config = tmp_path / "grpo.yaml"
    grpo = {"model": str(tiny_folder), "output_dir": str(tmp_path), setting: value}
    config.write_text(yaml.safe_dump({"grpo": grpo, "vllm": {"urls": ["http://x"]}}))
    assert main(["--config", str(config)]) == 2
    assert setting in capsys.readouterr().err


def test_the_defaults_are_read(tmp_path):
    config = tmp_path / "grpo.yaml"
    config.write_text("grpo: {model: m, output_dir: o}\nvllm: {urls: [http://x]}\n")
    assert read_command(config).rollouts.url == "http://127.0.0.1:8000"
