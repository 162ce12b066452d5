import pytest
from pydantic import TypeAdapter, ValidationError

from backends.docker import DockerLimits
from backends.local import LocalLimits
from backends.resources import USUAL, Resources
from trajectories.errors import ConfigError


def test_what_is_asked_for_takes_the_place_of_the_backends_own():
    asked = Resources(cpus=0.5, memory_mb=128, disk_mb=16)
    assert asked.applied_to(DockerLimits(processes=7)) == DockerLimits(
        cpus=0.5, memory_mb=128, disk_mb=16, processes=7
    )
    assert USUAL.applied_to(DockerLimits()) == DockerLimits()


def test_a_whole_sandbox_gets_the_memory_that_is_asked_for():
    limits = Resources(memory_mb=8192).applied_to(LocalLimits())
    assert (limits.memory_mb, limits.total_memory_mb) == (8192, 8192)


def test_what_a_backend_does_not_bound_is_refused():
    with pytest.raises(ConfigError, match=r"resources\.cpus: this backend does not bound it"):
        Resources(cpus=1).applied_to(LocalLimits())


@pytest.mark.parametrize("wrong", [{"memory_mb": 0}, {"disk_mb": -1}, {"cpus": 0.0}])
def test_bounds_are_positive(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"resources\.{name}: must be positive"):
        Resources(**wrong)


@pytest.mark.parametrize("wrong", [{"memory": 1}, {"memory_mb": "much"}])
def test_items_with_others_are_refused(wrong):
    with pytest.raises(ValidationError, match="memory"):
        TypeAdapter(Resources).validate_python(wrong)
