"""What the comparisons with vLLM and with the makers' encoders need."""

import os
from pathlib import Path

import pytest

from tests.inference.sessions.families import FETCH, REAL
from tests.real_parts import unavailable


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter that ``LACHESIS_VLLM_PYTHON`` names; see `unavailable` where it names none."""
    named = os.environ.get("LACHESIS_VLLM_PYTHON")
    if not named:
        unavailable("set LACHESIS_VLLM_PYTHON to the python of a vLLM installation")
    return Path(named)


@pytest.fixture(scope="session")
def harmony_vocabulary() -> Path:
    """The folder with the vocabulary that OpenAI's library reads."""
    folder = REAL / "harmony"
    if not folder.is_dir():
        unavailable(f"{folder} is missing; run: python {FETCH}")
    return folder
