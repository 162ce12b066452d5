"""Shared fixtures: the real model and the real server, where this machine has them."""

import os
from pathlib import Path

import hypothesis
import pytest

from scripts.fetch_model import NAME, default_cache, is_intact
from tests.real_parts import unavailable

hypothesis.settings.register_profile(
    "unhurried",
    parent=hypothesis.settings.default,  # on CI that is hypothesis' own profile for it
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("unhurried")  # how long an example takes depends on what else this host does


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """Folder of SmolLM2-135M-Instruct."""
    folder = default_cache() / NAME
    if not is_intact(folder):
        unavailable(f"{folder} is missing or damaged; run: python scripts/fetch_model.py")
    return folder


@pytest.fixture(scope="session")
def vllm_url() -> str:
    """Base URL of a vLLM server that serves the folder of ``model_folder``."""
    url = os.environ.get("LACHESIS_TEST_VLLM_URL")
    if not url:
        unavailable("LACHESIS_TEST_VLLM_URL is not set; run: .ci/vllm start")
    return url.rstrip("/")
