"""The run folder: settings saved beside the data, and no two runs mixed under one name."""

import pytest
import yaml

from environments.terminal_env import TerminalEnvConfig
from rollouts.load_settings import load_settings
from rollouts.run_folder import RunFolder
from trajectories.errors import ConfigError


def folder(tmp_path, *flags):
    flags = ["--model.path", "m", "--run.output_dir", str(tmp_path), *flags]
    return RunFolder(load_settings(TerminalEnvConfig, "test", flags, None), "name")


def test_the_resolved_settings_are_saved_beside_the_data(tmp_path):
    folder(tmp_path, "--env.group_size", "6").claim()
    saved = yaml.safe_load((tmp_path / "name" / "config.yaml").read_text())
    assert saved["env"]["group_size"] == 6
    assert saved["env"]["max_turns"] == 10
    assert saved["run"]["groups"] == 8


def test_a_run_may_grow_and_go_faster(tmp_path):
    first = folder(tmp_path)
    first.claim()
    again = folder(tmp_path, "--run.groups", "99", "--run.max_concurrent", "2")
    again.claim()
    assert again.config_hash == first.config_hash


def test_other_settings_under_the_same_name_are_refused_by_name(tmp_path):
    folder(tmp_path).claim()
    other = folder(tmp_path, "--env.seed", "5", "--env.sampling.temperature", "0.5")
    with pytest.raises(ConfigError, match=r"env\.sampling\.temperature, env\.seed"):
        other.claim()


def test_other_weights_under_the_same_name_are_refused(tmp_path):
    run = folder(tmp_path)
    run.claim()
    run.claim_model("tiny@1")
    run.claim_model("tiny@1")
    with pytest.raises(ConfigError, match="weights"):
        run.claim_model("tiny@2")


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run\.output_dir: cannot write"):
        folder(tmp_path / "file").claim()
