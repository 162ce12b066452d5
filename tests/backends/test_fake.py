import pytest

from backends import ExecutionResult, FakeBackend, FakeSlot
from backends.conformance import CHECKS, run_check
from trajectories.errors import SandboxDied, SandboxUnavailable

SHARED = (
    "a_missing_file_is_file_not_found",
    "a_slot_is_dead_once_released",
    "a_full_pool_says_so_in_time",
    "waiters_are_served_in_order",
)
"""Checks that run no command."""


@pytest.mark.parametrize("check", [check for check in CHECKS if check.name in SHARED], ids=lambda c: c.name)
async def test_fake_slots_conform_where_nothing_has_to_run(check):
    await run_check(check, lambda warm=0, **options: FakeBackend(**options))


def test_every_shared_check_exists():
    assert set(SHARED) <= {check.name for check in CHECKS}


async def test_commands_are_answered_by_a_script_and_remembered():
    failed = ExecutionResult("", "no\n", 1)
    slot = FakeSlot(script={"ls": "a\n", "make": failed, "die": SandboxDied("gone")})
    heard = []
    result = await slot.exec("ls", on_output=lambda channel, data: heard.append((channel, data)))
    assert (result.stdout, result.exit_code, heard) == ("a\n", 0, [("stdout", b"a\n")])
    assert await slot.exec("make") is failed
    assert (await slot.exec("anything else")).exit_code == 0
    with pytest.raises(SandboxDied, match="gone"):
        await slot.exec("die")
    assert slot.commands == ["ls", "make", "anything else", "die"]


async def test_a_script_can_be_a_function():
    slot = FakeSlot(script=lambda command: command.upper())
    assert (await slot.exec("echo")).stdout == "ECHO"


async def test_files_are_read_and_written_as_in_a_sandbox(tmp_path):
    slot = FakeSlot(files={"d/a": b"1"})
    await slot.write_file("/workspace/d/b", b"2")
    assert (await slot.read_file("./d/a"), await slot.read_file("d/b")) == (b"1", b"2")
    for call in (slot.read_file("d"), slot.write_file("d", b"")):
        with pytest.raises(IsADirectoryError):
            await call
    with pytest.raises(OSError, match="max_bytes"):
        await slot.read_file("d/a", max_bytes=0)
    await slot.download("d", tmp_path / "out")
    await slot.upload(tmp_path / "out", "copy")
    assert slot.files["/workspace/copy/b"] == b"2"


async def test_a_backend_can_have_nothing_to_give():
    async with FakeBackend(failure=SandboxUnavailable("none here")) as backend:
        with pytest.raises(SandboxUnavailable, match="none here"):
            await backend.acquire("a")
