import pytest

from backends import available_backends, create_backend
from backends.registry import parse_options
from trajectories.errors import ConfigError


def test_backends_are_known_by_name():
    assert available_backends() == ["docker", "local", "modal", "nomad", "ssh"]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("dokcer", {}, "did you mean 'docker'"),
        ("cloud", {}, "known are docker, local, modal, nomad, ssh"),
        ("local", {"max_slot": 3}, "did you mean 'max_slots'"),
        ("docker", {"memory_gb": 3}, "did you mean 'memory_mb'"),
        ("local", {"max_slots": 0}, "max_slots: must be positive"),
        ("docker", {"host": "ftp://x"}, "neither unix:///path nor tcp://host:port"),
        ("modal", {"lease_s": 0}, "lease_s: must be positive"),
        ("nomad", {"slots_per_container": 0}, "slots_per_container: must be positive"),
        ("ssh", {}, "host: name the SSH host"),
        ("ssh", {"host": "a", "max_sessions": 1}, "at least 2"),
    ],
)
def test_a_wrong_setting_is_named_with_its_fix(kind, options, message):
    with pytest.raises(ConfigError, match=message):
        create_backend(kind, **options)


def test_command_line_options_are_json_or_text():
    assert parse_options(["a=1", "b=x", "c=true", 'd="1"']) == {"a": 1, "b": "x", "c": True, "d": "1"}
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_options(["a"])
