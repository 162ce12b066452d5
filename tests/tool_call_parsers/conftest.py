"""Where the interpreter of a vLLM installation is, for the differential test."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter that ``LACHESIS_VLLM_PYTHON`` names; the tests that need it are skipped without."""
    named = os.environ.get("LACHESIS_VLLM_PYTHON")
    if not named:
        pytest.skip("set LACHESIS_VLLM_PYTHON to the python of a vLLM installation")
    return Path(named)
