import os

import pytest

from backends import create_backend
from backends.memory_groups import MemoryGroups, find_parent
from tests.backends.host_processes import until
from tests.real_parts import unavailable


def version_2(mount, *groups):
    """Build what a host with control groups of version 2 shows; each group comes with what it hands down."""
    for name, controllers in groups:
        (mount / name).mkdir(parents=True, exist_ok=True)
        (mount / name / "cgroup.subtree_control").write_text(controllers)
        (mount / name / "cgroup.procs").write_text("")


def test_a_group_delegated_to_us_is_taken_before_the_root(tmp_path):
    version_2(tmp_path, ("", "cpu memory"), ("user/app", "memory pids"), ("user/app/ours", ""))
    assert find_parent(tmp_path, "0::/user/app/ours\n") == tmp_path / "user/app"


def test_the_root_is_taken_where_our_own_parent_hands_no_memory_down(tmp_path):
    version_2(tmp_path, ("", "memory"), ("user", "pids"), ("user/ours", ""))
    assert find_parent(tmp_path, "0::/user/ours\n") == tmp_path


def test_version_1_has_a_folder_for_memory(tmp_path):
    (tmp_path / "memory").mkdir()
    for name in ("memory.limit_in_bytes", "cgroup.procs"):
        (tmp_path / "memory" / name).touch()
    assert find_parent(tmp_path, "4:memory:/x\n0::/\n") == tmp_path / "memory"


def test_a_host_without_groups_has_no_parent(tmp_path):
    assert find_parent(tmp_path, "0::/\n") is None


@pytest.fixture
def parent():
    groups = MemoryGroups.here()
    if groups is None:
        unavailable("no control groups that bound memory can be made here; run as root, or delegate one")
    groups.close()
    return groups.folder.parent


def ours(parent):
    return {entry for entry in parent.glob(f"lachesis-{os.getpid()}-*") if entry.is_dir()}


async def test_each_local_sandbox_has_a_group_that_ends_with_it(parent):
    before = ours(parent)
    async with create_backend("local", warm=0, total_memory_mb=100) as backend:
        async with backend.acquire("a") as slot:
            (folder,) = ours(parent) - before
            (group,) = [entry for entry in folder.iterdir() if entry.is_dir()]
            shells_with_keepers = (group / "cgroup.procs").read_text().split()
            assert len(shells_with_keepers) == 4
            hog = await slot.exec("head -c 300M /dev/zero | tail >/dev/null", isolated=True)
            assert hog.exit_code == 137
            assert (await slot.exec("echo $(echo fine)")).stdout == "fine\n"
        assert [entry for entry in folder.iterdir() if entry.is_dir()] == []
    await until(lambda: ours(parent) <= before)
