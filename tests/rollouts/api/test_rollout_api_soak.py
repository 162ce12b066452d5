"""Short forms of the soak and the benchmark; the full runs' results are in ``scripts/bench/results``."""

import json
import sys

import pytest

from tests.rollouts.api.serving import ROOT, run


async def script(module: str, *flags: str) -> str:
    code, out = await run(sys.executable, "-m", module, *flags, PYTHONPATH=str(ROOT))
    assert code == 0, out
    return out


@pytest.mark.xdist_group("soak")
async def test_no_group_is_lost_or_trained_again_unmarked_when_any_part_is_killed():
    report = json.loads(await script("scripts.soak_rollout_api", "--groups", "150", "--kill-every", "0.8"))
    assert sum(report["kills"].values()) > 0
    assert report["trained_once"] + report["trained_again_marked"] == 150
    wrong = ("lost", "invented", "trained_again_unmarked", "trained_after_ack")
    assert not any(report[name] for name in wrong)


async def test_the_benchmark_runs_on_both_wires():
    out = await script("scripts.bench.rollout_api", "--groups", "16")
    assert "ours, native" in out and "ours, Atropos' wire" in out


async def test_the_memory_run_takes_what_it_pushes():
    out = await script("scripts.bench.rollout_api", "--memory", "320")
    assert out.splitlines()[-1].split()[0] == "320"
