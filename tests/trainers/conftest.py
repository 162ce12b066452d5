import asyncio
from pathlib import Path

import pytest

from tests.inference.engines.tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def lookup_folder(tmp_path_factory) -> Path:
    """A tiny model that mostly calls the tool of `LookupEnv`, after a few demonstrations."""
    from inference.chat_template import shipped_template
    from scripts.lookup_model import demonstrations, imitate, save_random_model, save_tokenizer

    folder = tmp_path_factory.mktemp("lookup")
    tokenizer = save_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(shipped_template())
    save_random_model(folder, tokenizer.get_vocab(), seed=0)
    rows = asyncio.run(demonstrations(folder, 100, seed=0))
    imitate(folder, rows, seed=0, steps=40)
    return folder
