"""The model folder is whole and hashed, or it isn't there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.fetch_model import FetchError, fetch, is_intact

ROOT = Path(__file__).parents[2]


def good_source(folder: Path, downloads: Path) -> str:
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    return "test:good"


def broken_source(folder: Path, downloads: Path) -> str:
    (folder / "model.safetensors").write_bytes(b"wei")
    raise OSError("connection lost\nwith details")


def forbidden_source(folder: Path, downloads: Path) -> str:
    raise AssertionError("an intact folder needs no source")


def test_the_folder_records_where_it_came_from_and_its_hashes(tmp_path):
    folder = fetch(tmp_path, {"good": good_source})

    manifest = json.loads((folder / "lachesis.json").read_text())
    assert manifest["source"] == "test:good"
    assert set(manifest["files"]) == {"model.safetensors", "config.json"}
    assert len(manifest["sha256"]) == 64
    assert is_intact(folder)


def test_an_intact_folder_is_returned_without_asking_any_source(tmp_path):
    first = fetch(tmp_path, {"good": good_source})

    assert fetch(tmp_path, {"forbidden": forbidden_source}) == first


@pytest.mark.parametrize("damage", ["change", "delete", "manifest"])
def test_a_damaged_folder_is_built_anew(tmp_path, damage):
    folder = fetch(tmp_path, {"good": good_source})
    if damage == "change":
        (folder / "model.safetensors").write_bytes(b"weightz")
    elif damage == "delete":
        (folder / "config.json").unlink()
    else:
        (folder / "lachesis.json").write_text("{")
    assert not is_intact(folder)

    assert is_intact(fetch(tmp_path, {"good": good_source}))


def test_the_next_source_starts_from_an_empty_folder_when_one_breaks(tmp_path):
    folder = fetch(tmp_path, {"broken": broken_source, "good": good_source})

    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_when_every_source_fails_nothing_is_left_and_the_reasons_fit_one_line(tmp_path):
    with pytest.raises(FetchError) as failure:
        fetch(tmp_path, {"first": broken_source, "second": broken_source})

    assert "first: connection lost" in str(failure.value)
    assert "second: connection lost" in str(failure.value)
    assert "\n" not in str(failure.value)
    assert not list(tmp_path.glob("SmolLM2*/"))


def test_an_unwritable_cache_ends_the_command_with_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "scripts/fetch_model.py", "--cache", str(tmp_path / "file" / "cache")]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "--cache" in done.stderr


@pytest.mark.model
def test_the_fetched_tokenizer_splits_digits_and_keeps_its_control_tokens(model_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)

    assert is_intact(model_folder)
    assert tokenizer.tokenize("a   123") == ["a", "ĠĠĠ", "1", "2", "3"]
    assert tokenizer.encode("<|im_start|><|im_end|>") == [1, 2]
