"""The command line, run as users run it, against a loopback chat server and real sandboxes."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from rollouts.store import TrajectoryStore
from tests.rollouts.chat_server import calls, chat_server, runs, says
from trajectories.sharegpt import from_sharegpt
from trajectories.trajectory import StopReason

ROOT = Path(__file__).parents[2]


async def lachesis(*arguments: str, script: str = "environments/terminal_env.py") -> tuple[int, str, str]:
    """Run the command to its end; give exit code, standard output and standard error."""
    process = await start(*arguments, script=script)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def start(*arguments: str, script: str = "environments/terminal_env.py") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / script),
        *arguments,
        cwd="/",
        env={**os.environ, "COLUMNS": "160"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def run_of(tmp_path: Path, url: str, *flags: str) -> list[str]:
    """Flags of a small run."""
    model = ["--model.kind", "openai", "--model.base_url", url, "--model.name", "handy"]
    size = [
        "--run.groups",
        "6",
        "--env.group_size",
        "2",
        "--env.tier",
        "easy",
        "--run.output_dir",
        str(tmp_path),
    ]
    return [*model, *size, *flags]


def kept(tmp_path: Path, name: str = "terminal"):
    with TrajectoryStore(tmp_path / name / "trajectories.jsonl") as store:
        return list(store)


async def test_process_ends_with_the_summary_the_sharegpt_file_and_one_trajectory(tmp_path):
    async with chat_server() as url:
        code, out, err = await lachesis("process", *run_of(tmp_path, url))
    assert code == 0, err
    path = tmp_path / "terminal" / "sharegpt.jsonl"
    summary, file_line, shown = out.index("mean reward"), out.index(str(path)), out.index("· reward 1 ·")
    assert summary < file_line < shown
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 12
    assert {row["reward"] for row in rows} == {0.0, 1.0}
    assert all(from_sharegpt(row)[0].role == "system" for row in rows)
    assert {t.stop_reason for t in kept(tmp_path)} == {StopReason.COMPLETED}


async def test_evaluate_reports_estimates_with_intervals(tmp_path):
    async with chat_server() as url:
        code, out, err = await lachesis("evaluate", *run_of(tmp_path, url))
    assert code == 0, err
    assert "pass@1" in out
    report = json.loads((tmp_path / "terminal-evaluation" / "evaluation.json").read_text())
    assert set(report) == {"reward", "pass@1", "pass@2"}
    assert report["pass@1"]["low"] <= report["pass@1"]["mean"] <= report["pass@1"]["high"]


async def test_the_word_problems_run_with_the_python_tool(tmp_path):
    def computes(messages):
        if messages[-1]["role"] == "tool":
            return says(f"#### {json.loads(messages[-1]['content'])['output']}")
        return calls("python", json.dumps({"code": "print(6 * 7)"}))

    data = tmp_path / "items.jsonl"
    data.write_text(
        '{"question": "6 times 7?", "answer": "#### 42"}\n{"question": "6 times 8?", "answer": "#### 48"}\n'
    )
    async with chat_server(computes) as url:
        model = ["--model.kind", "openai", "--model.base_url", url, "--model.name", "handy"]
        size = ["--run.groups", "2", "--env.group_size", "1", "--run.output_dir", str(tmp_path)]
        flags = [*model, *size, "--env.dataset", str(data)]
        code, _, err = await lachesis("process", *flags, script="environments/gsm8k_env.py")
    assert code == 0, err
    assert sorted(t.reward for t in kept(tmp_path, "gsm8k")) == [0.0, 1.0]


async def test_kill_9_loses_nothing_and_runs_nothing_again(tmp_path):
    log = tmp_path / "terminal" / "trajectories.jsonl"
    flags = ["--run.groups", "20", "--run.max_concurrent", "4"]
    async with chat_server(delay_s=0.1) as url:
        process = await start("process", *run_of(tmp_path, url, *flags))
        while not log.exists() or log.read_bytes().count(b"\n") < 8:
            assert process.returncode is None
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        before = log.read_bytes()
        whole = before[: before.rindex(b"\n") + 1]
        code, _, err = await lachesis("process", *run_of(tmp_path, url, *flags))
    assert code == 0, err
    after = log.read_bytes()
    assert after.startswith(whole)
    assert after.count(b"\n") == 40
    trajectories = kept(tmp_path)
    assert len({t.trajectory_id for t in trajectories}) == 40
    assert len((tmp_path / "terminal" / "sharegpt.jsonl").read_text().splitlines()) == 40
    groups = {t.group_id for t in trajectories}
    assert len(groups) == 20


async def test_sigterm_stops_the_run_and_the_same_command_goes_on(tmp_path):
    log = tmp_path / "terminal" / "trajectories.jsonl"
    async with chat_server(delay_s=0.1) as url:
        process = await start("process", *run_of(tmp_path, url, "--run.max_concurrent", "2"))
        while not log.exists() or b"\n" not in log.read_bytes():
            assert process.returncode is None
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
        assert process.returncode == 130
        assert "goes on from here" in err.decode()
        code, _, err = await lachesis("process", *run_of(tmp_path, url, "--run.max_concurrent", "2"))
    assert code == 0, err
    assert len(kept(tmp_path)) == 12


@pytest.mark.parametrize(
    ("brain", "reasons"),
    [
        (lambda messages: says("I would rather not."), {StopReason.COMPLETED}),
        (lambda messages: calls("teleport", "{}"), {StopReason.MAX_TURNS}),
        (lambda messages: calls("terminal", '{"command": "ls'), {StopReason.MAX_TURNS}),
        (lambda messages: runs("ls"), {StopReason.MAX_TURNS}),
        (lambda messages: runs("head -c 10000000 /dev/zero | tr '\\0' x"), {StopReason.MAX_TURNS}),
    ],
    ids=["never calls", "unknown tool", "broken JSON", "loops for ever", "prints 10 MB"],
)
async def test_whatever_the_model_does_ends_as_a_stop_reason(brain, reasons, tmp_path):
    async with chat_server(brain) as url:
        flags = run_of(tmp_path, url, "--run.groups", "2", "--env.max_turns", "3")
        code, _, err = await lachesis("process", *flags)
    assert code == 0, err
    trajectories = kept(tmp_path)
    assert {t.stop_reason for t in trajectories} == reasons
    assert all(t.reward == 0.0 and t.error is None for t in trajectories)
    assert all(len(m.content or "") < 10_000 for t in trajectories for m in t.messages)


async def refused(*arguments: str) -> str:
    """Run a command that can't work; give its one line of complaint."""
    code, out, err = await lachesis(*arguments)
    assert code == 2
    assert out == ""
    (line,) = err.strip().splitlines()
    return line


async def test_an_unknown_setting_is_refused(tmp_path):
    line = await refused("process", *run_of(tmp_path, "http://x/v1"), "--env.gruop_size", "8")
    assert line == "error: unknown setting env.gruop_size; did you mean env.group_size?"


async def test_an_unreachable_server_is_refused(tmp_path):
    line = await refused("process", *run_of(tmp_path, "http://127.0.0.1:9/v1"))
    assert line.startswith("error: model: base_url: ")
    assert "127.0.0.1:9" in line


async def test_a_dataset_without_the_prompt_field_is_refused(tmp_path):
    data = tmp_path / "items.jsonl"
    data.write_text('{"prompt": "a", "checks": ["true"]}\n{"question": "b", "checks": ["true"]}\n')
    line = await refused("process", *run_of(tmp_path, "http://x/v1"), "--env.dataset", str(data))
    assert "env.dataset: item 2" in line
    assert "'prompt'" in line
    assert "question" in line


async def test_an_output_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    line = await refused("process", *run_of(tmp_path / "file", "http://x/v1"))
    assert "run.output_dir" in line


async def test_a_model_folder_without_chat_template_is_refused(tmp_path, model_folder):
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in model_folder.iterdir():
        if "template" not in file.name:
            (bare / file.name).symlink_to(file)
    flags = ["--model.path", str(bare), "--run.output_dir", str(tmp_path)]
    line = await refused("process", *flags)
    assert line.startswith("error: model: ")
    assert "set chat_template to 'hermes'" in line


async def test_a_model_folder_that_is_not_there_is_refused(tmp_path):
    flags = ["--model.path", str(tmp_path / "absent"), "--run.output_dir", str(tmp_path)]
    line = await refused("process", *flags)
    assert "absent" in line
