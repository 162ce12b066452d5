"""Tests that need a real part: a model, a server, an engine."""

import os
from typing import NoReturn

import pytest

ON_VLLM = [pytest.mark.vllm, pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]
"""Marks of tests that share the one vLLM server: one after the other, since it shares two cores with them."""


def unavailable(reason: str) -> NoReturn:
    """Fail the test on CI, which installs and starts every part; elsewhere skip it with the way to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
