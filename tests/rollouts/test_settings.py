"""Settings: later sources win, and what does not fit is refused by name."""

import pytest

from environments.terminal_env import TerminalEnvConfig
from rollouts.load_settings import load_settings
from trajectories.errors import ConfigError

MODEL = ["--model.path", "some/folder"]


def load(*flags, yaml_file=None):
    return load_settings(TerminalEnvConfig, "test", [*MODEL, *flags], yaml_file)


@pytest.fixture
def config_file(tmp_path):
    def write(text: str):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return write


def test_defaults_yaml_variables_and_flags_override_each_other_in_this_order(config_file, monkeypatch):
    path = config_file("env: {group_size: 2, max_turns: 2, seed: 2}\nrun: {groups: 2}\n")
    monkeypatch.setenv("LACHESIS_ENV__MAX_TURNS", "3")
    monkeypatch.setenv("LACHESIS_ENV__SEED", "3")
    settings = load("--env.seed", "4", yaml_file=path)
    assert (settings.env.group_size, settings.env.max_turns, settings.env.seed) == (2, 3, 4)
    assert (settings.run.groups, settings.run.max_attempts) == (2, 3)


def test_the_environments_own_settings_are_settings():
    assert load("--env.tier", "hard").env.tier == "hard"


def test_a_server_is_chosen_by_kind():
    settings = load_settings(
        TerminalEnvConfig,
        "test",
        ["--model.kind", "openai", "--model.base_url", "http://localhost:1/v1", "--model.name", "m"],
        None,
    )
    assert settings.model.base_url == "http://localhost:1/v1"


def test_a_key_is_never_saved_readably():
    settings = load_settings(
        TerminalEnvConfig,
        "test",
        ["--model.kind=openai", "--model.base_url=http://x/v1", "--model.name=m", "--model.api_key=hunter2"],
        None,
    )
    assert "hunter2" not in settings.model_dump_json()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--serve.url", "localhost:8000"], "serve.url: String should match pattern '^https?://.'"),
        (["--env.gruop_size", "8"], "unknown setting env.gruop_size; did you mean env.group_size?"),
        (["--env.group_size", "many"], "env.group_size: "),
        (["--env.group_size", "0"], "env.group_size: "),
        (["--env.tier", "impossible"], "env.tier: "),
        (["--model.kind", "embedded", "--model.base_url", "http://x"], "unknown setting model.base_url"),
        (["--model.kind", "openai", "--model.name", "m"], "model"),
        (
            ["--model.calls_in_open_reasoning", "maybe"],
            "model.calls_in_open_reasoning: Input should be 'refuse' or 'accept'",
        ),
        (["stray"], "stray"),
    ],
)
def test_a_wrong_flag_is_refused_by_name(flags, complaint):
    with pytest.raises(ConfigError) as refusal:
        load(*flags)
    assert complaint in str(refusal.value)


def test_a_missing_setting_says_how_to_set_it():
    with pytest.raises(ConfigError, match=r"model\.path is not set: use --model\.path, LACHESIS_MODEL__PATH"):
        load_settings(TerminalEnvConfig, "test", ["--model.kind", "embedded"], None)


@pytest.mark.parametrize("variable", ["LACHESIS_ENV__GRUOP_SIZE", "LACHESIS_EVN__GROUP_SIZE"])
def test_a_wrong_variable_is_refused_by_name(variable, monkeypatch):
    monkeypatch.setenv(variable, "8")
    with pytest.raises(ConfigError, match=rf"{variable}: .*did you mean env\.group_size"):
        load()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("env: {gruop_size: 8}", "did you mean env.group_size"),
        ("evn: {group_size: 8}", "unknown setting evn"),
        ("- env", "must hold a mapping"),
        ("env: {", "is not YAML"),
    ],
)
def test_a_wrong_file_is_refused(text, complaint, config_file):
    with pytest.raises(ConfigError) as refusal:
        load(yaml_file=config_file(text))
    assert complaint in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--config: cannot read .*absent\.yaml"):
        load(yaml_file=tmp_path / "absent.yaml")


def test_help_shows_every_setting_with_its_default(capsys):
    with pytest.raises(SystemExit) as leaving:
        load("--help")
    shown = capsys.readouterr().out
    assert leaving.value.code == 0
    for flag in (
        "--env.group_size",
        "--env.tier",
        "--model.base_url",
        "--run.output_dir",
        "--env.sampling.top_p",
    ):
        assert flag in shown
    assert "(default: 4)" in shown
