import pytest

from tests.inference.engines.tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))
