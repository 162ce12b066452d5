"""What the comparisons with vLLM and with the makers' encoders need."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="session")
def ask_in_vllm(vllm_python, harmony_vocabulary) -> Callable[[Path, Any], Any]:
    """Runs a script by vLLM's interpreter: JSON in, the JSON of its last line out."""

    def ask(script: Path, request: Any) -> Any:
        result = subprocess.run(
            [vllm_python, script],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TIKTOKEN_ENCODINGS_BASE": str(harmony_vocabulary)},
        )
        return json.loads(result.stdout.splitlines()[-1])

    return ask
