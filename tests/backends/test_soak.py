import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def soak(*arguments):
    command = [sys.executable, "-m", "scripts.soak_sandboxes", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.xdist_group("soak")
def test_local_sandboxes_leave_nothing_after_a_short_soak():
    report = soak("local", "--cycles", "60", "--in-flight", "16", "--kills", "3")
    assert report["cycles"] >= 60
    assert report["harness_kills"] == 3
    assert not any(report["left"].values())


@pytest.mark.docker
@pytest.mark.xdist_group("soak")
def test_containers_leave_nothing_after_a_short_soak():
    report = soak("docker", "image=lachesis-test", "--cycles", "16", "--in-flight", "4", "--kills", "1")
    assert report["harness_kills"] == 1
    assert not any(report["left"].values())
