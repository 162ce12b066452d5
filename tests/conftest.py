"""Shared fixtures: the real model and the real server, where this machine has them.

On CI a missing one fails the tests that need it; elsewhere they are skipped with the way to get it.
"""

import os
from pathlib import Path

import pytest

from scripts.fetch_model import NAME, default_cache, is_intact


def _unavailable(reason: str):
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """Folder of SmolLM2-135M-Instruct."""
    folder = default_cache() / NAME
    if not is_intact(folder):
        _unavailable(f"{folder} is missing or damaged; run: python scripts/fetch_model.py")
    return folder


@pytest.fixture(scope="session")
def vllm_url() -> str:
    """Base URL of a vLLM server that serves the folder of ``model_folder``."""
    url = os.environ.get("LACHESIS_TEST_VLLM_URL")
    if not url:
        _unavailable("LACHESIS_TEST_VLLM_URL is not set; run: .ci/vllm start")
    assert url
    return url.rstrip("/")
