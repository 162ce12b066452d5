"""The store: what was kept survives, what was torn is cut off, and one process writes at a time."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rollouts.store import TrajectoryStore
from tests.builders import trajectory_of
from trajectories import record
from trajectories.errors import ConfigError
from trajectories.messages import Message
from trajectories.trajectory import Failure, StopReason


def trajectory(name: str, **changes):
    messages = [Message.user("go"), Message.assistant("done")]
    return trajectory_of(messages, trajectory_id=name, **changes)


async def test_what_was_appended_is_there_after_reopening(tmp_path):
    path = tmp_path / "run" / "t.jsonl"
    with TrajectoryStore(path) as store:
        await asyncio.gather(*(store.append(trajectory(f"t{i}")) for i in range(20)))
    with TrajectoryStore(path) as store:
        assert len(store) == 20
        assert all(store.finished(f"t{i}") for i in range(20))
        assert store.read("t7") == trajectory("t7")
        assert store.read("other") is None


@pytest.mark.parametrize("cut", [1, 7, 200])
async def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path, cut):
    path = tmp_path / "t.jsonl"
    with TrajectoryStore(path) as store:
        await store.append(trajectory("a"))
        await store.append(trajectory("b"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with TrajectoryStore(path) as store:
        assert store.finished("a")
        assert not store.finished("b")
        await store.append(trajectory("b"))
    assert path.read_bytes() == whole


async def test_a_failed_rollout_is_kept_but_not_finished_and_a_later_record_replaces_it(tmp_path):
    failed = trajectory(
        "a", reward=None, stop_reason=StopReason.ERROR, error=Failure("model", "ModelError", "down", True)
    )
    with TrajectoryStore(tmp_path / "t.jsonl") as store:
        await store.append(failed)
        assert not store.finished("a")
        assert store.read("a") == failed
        await store.append(trajectory("a"))
        assert store.finished("a")
        assert [t.reward for t in store] == [1.0]
    assert len(list(record.read_trajectories(tmp_path / "t.jsonl"))) == 2


def test_two_processes_cannot_write_one_store(tmp_path):
    path = tmp_path / "t.jsonl"
    with (
        TrajectoryStore(path),
        pytest.raises(ConfigError, match=r"another process is writing"),
        TrajectoryStore(path),
    ):
        pass


def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_overwritten(tmp_path):
    path = tmp_path / "t.jsonl"
    content = record.dumps(trajectory("a")) + b"\nnot json\n" + record.dumps(trajectory("b")) + b"\n"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"t\.jsonl, line 2"), TrajectoryStore(path):
        pass
    assert path.read_bytes() == content


def test_an_output_that_cannot_be_a_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run\.output_dir"), TrajectoryStore(tmp_path / "file" / "t.jsonl"):
        pass


async def test_a_full_disk_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    with TrajectoryStore(path) as store:
        await store.append(trajectory("a"))
        before = path.read_bytes()
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
        with pytest.raises(ConfigError, match="disk is full"):
            await store.append(trajectory("b"))
        assert path.read_bytes() == before
        assert not store.finished("b")
        monkeypatch.undo()
        await store.append(trajectory("b"))
    with TrajectoryStore(path) as store:
        assert store.read("b") == trajectory("b")


WRITER = """
import asyncio, sys
from pathlib import Path
from rollouts.store import TrajectoryStore
from tests.rollouts.test_store import trajectory

async def main():
    with TrajectoryStore(Path(sys.argv[1])) as store:
        for index in range(100_000):
            await store.append(trajectory(f"t{index}"))
            print(index, flush=True)

asyncio.run(main())
"""


def test_every_acknowledged_trajectory_survives_kill_9(tmp_path):
    path = tmp_path / "t.jsonl"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        for _ in range(50):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged = 50 + writer.stdout.read().count("\n")
    with TrajectoryStore(path) as store:
        assert acknowledged <= len(store) <= acknowledged + 1
        assert all(store.finished(f"t{index}") for index in range(acknowledged))


async def test_a_record_of_a_cancelled_append_is_whole(tmp_path):
    with TrajectoryStore(tmp_path / "t.jsonl") as store:
        big = replace(trajectory("a"), metadata={"text": "x" * 1_000_000})
        append = asyncio.create_task(store.append(big))
        await asyncio.sleep(0)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        await store.append(trajectory("b"))
        assert store.read("a") == big
        assert store.read("b") == trajectory("b")
