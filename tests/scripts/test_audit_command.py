"""The audit's command line: its exit status and what it says."""

import asyncio
import sys
from dataclasses import replace

import pytest

from inference.embedded import EmbeddedEngine
from inference.fake_server import FakeServer
from inference.managed import ManagedClient
from inference.scripted_engine import ScriptedEngine
from inference.scripted_model import byte_model_files
from scripts import audit
from tests.builders import trajectory_of
from trajectories.errors import ConfigError
from trajectories.messages import Message
from trajectories.record import dumps
from trajectories.turn import SamplingParams, Turn


@pytest.fixture
def trajectory():
    generation = asyncio.run(ScriptedEngine([[4, 5]]).generate([1, 2, 3], SamplingParams(), session_id="s"))
    turn = Turn(
        Message.assistant("x"),
        "stop",
        SamplingParams(),
        prompt_ids=[1, 2, 3],
        output_ids=generation.output_ids,
        output_logprobs=generation.output_logprobs,
        logprobs_kind="raw",
    )
    return replace(trajectory_of([turn.message]), turns=[turn])


@pytest.fixture
def run(tmp_path, monkeypatch):
    async def scripted(name, tokenizer, model):
        return ScriptedEngine([])

    def run(*trajectories, engine="folder", real=False):
        path = tmp_path / "data.jsonl"
        path.write_bytes(b"".join(dumps(trajectory) + b"\n" for trajectory in trajectories))
        if not real:
            monkeypatch.setattr(audit, "_engine", scripted)
        monkeypatch.setattr(sys, "argv", ["audit.py", str(path), "--engine", engine])
        return audit.main()

    return run


def test_a_true_record_passes(run, trajectory, capsys):
    assert run(trajectory) == 0
    assert "compared          2, not comparable 0" in capsys.readouterr().out


def test_a_changed_record_fails_and_says_where(run, trajectory, capsys):
    changed = replace(trajectory, turns=[replace(trajectory.turns[0], output_ids=[5, 4])])
    assert run(trajectory, changed) == 1
    assert "run/item/0: row 0, position 3" in capsys.readouterr().out


def test_a_server_needs_the_tokenizers_name(run, trajectory, capsys):
    assert run(trajectory, engine="http://127.0.0.1:1", real=True) == 2
    assert "--tokenizer" in capsys.readouterr().err


async def test_of_the_models_of_a_server_one_is_named(trajectory, tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(dumps(replace(trajectory, model="mine")) + b"\n")
    byte_model_files().tokenizer.save(str(tmp_path / "tokenizer.json"))
    async with FakeServer(ScriptedEngine([[1]]), model="mine") as server:
        with pytest.raises(ConfigError, match="serves mine; name one"):
            await audit.run(path, server.url, str(tmp_path), 1e-9, model="yours")
        report = await audit.run(path, server.url, str(tmp_path), 1e-9, model="mine")
    assert (report.violations, report.compared) == ([], 2)


def test_a_file_that_is_no_record_is_said_so(run, tmp_path, capsys, monkeypatch):
    run()
    (tmp_path / "data.jsonl").write_text("{}\n")
    assert audit.main() == 2
    assert "line 1" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_said_so(run, trajectory, tmp_path, capsys):
    run(trajectory)
    (tmp_path / "data.jsonl").unlink()
    assert audit.main() == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("messages", [[], [Message.user("x")], [Message.assistant("x")]])
def test_what_holds_nothing_to_compare_proves_nothing(run, messages, capsys):
    assert run(*map(trajectory_of, filter(None, [messages]))) == 2
    assert "nothing was compared" in capsys.readouterr().err


@pytest.mark.model
async def test_what_the_embedded_engine_sampled_it_scores_alike(model_folder, tmp_path, trajectory):
    client = ManagedClient(EmbeddedEngine(model_folder), model_folder)
    await client.start()
    try:
        async with client.session("t", [Message.user("Say hello.")], []) as session:
            first = (await session.extend([], SamplingParams(max_tokens=8, seed=1))).turn
            second = (await session.extend([Message.user("Again.")], SamplingParams(max_tokens=8))).turn
        sampled = replace(trajectory, model=client.model, turns=[first, second])
    finally:
        await client.close()
    path = tmp_path / "data.jsonl"
    path.write_bytes(dumps(sampled) + b"\n")
    report = await audit.run(path, str(model_folder), None, audit.MAX_DELTA)
    assert report.violations == []
    assert report.compared == len(first.output_ids) + len(second.output_ids)
    assert report.rows == {"start": 1}
