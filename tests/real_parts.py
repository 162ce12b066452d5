"""Tests that need a real part: a model, a server, an engine."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

ON_VLLM = [pytest.mark.vllm, pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]
"""Marks of tests that share the one vLLM server: one after the other, since it shares two cores with them."""


def unavailable(reason: str) -> NoReturn:
    """Fail the test on CI, which installs and starts every part; elsewhere skip it with the way to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def python_with(part: str) -> str:
    """Return the interpreter of the virtual environment that ``.ci/PART`` makes."""
    venv = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lachesis" / f"{part}-venv"
    python = venv / "bin" / "python"
    if not (venv / "installed").exists():
        unavailable(f"{python} is missing; run: .ci/{part}")
    return str(python)
