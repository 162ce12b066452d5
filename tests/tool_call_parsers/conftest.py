"""Where the interpreter of a vLLM installation is, for the differential test."""

import os
from pathlib import Path

import pytest

from tests.real_parts import unavailable


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter that ``LACHESIS_VLLM_PYTHON`` names; see `unavailable` where it names none."""
    named = os.environ.get("LACHESIS_VLLM_PYTHON")
    if not named:
        unavailable("set LACHESIS_VLLM_PYTHON to the python of a vLLM installation")
    return Path(named)
