"""Adapters beside the types, and where it runs here the machinery, of the trainers they are for."""

import os
import re
from pathlib import Path

import pytest

from tests.real_parts import python_with
from tests.rollouts.api.serving import ROOT, run

pytestmark = pytest.mark.timeout(300)
HERE = Path(__file__).parent
CHECKS = ("check_verl.py", "check_skyrl.py")


@pytest.fixture(scope="module")
def trainers_python() -> str:
    """The interpreter of a virtual environment with verl and SkyRL."""
    return python_with("trainers")


async def test_the_trainers_own_packages_take_our_rollouts(trainers_python):
    code, out = await run(
        *(trainers_python, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(ROOT)),
        *("--import-mode=importlib", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"),
        *("-p", "tests.trainers.skyrl_plugin", *(str(HERE / name) for name in CHECKS)),
        PYTHONPATH=str(ROOT),
    )
    assert code == 0, out
    assert re.search(r"^\d+ passed(, \d+ warnings?)? in ", out, re.MULTILINE), f"some did not run: {out}"
