from pathlib import Path

import pytest

from tests.inference.engines.tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    pytest.importorskip("torch", reason="needs the torch extra")
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
