"""Items from files and datasets: complete, keyed by content, and refused by name where they don't fit."""

import pytest

from environments.items import PromptItem, item_key, load_items
from environments.terminal_env import TerminalItem
from trajectories.errors import ConfigError


def test_items_come_from_json_lines_with_all_their_fields(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": 1, "prompt": "a", "extra": [1]}\n\n{"id": 2, "prompt": "b"}\n')
    assert load_items(str(path), "train", PromptItem) == [
        {"id": 1, "prompt": "a", "extra": [1]},
        {"id": 2, "prompt": "b"},
    ]


def test_items_come_from_a_datasets_folder(tmp_path):
    import datasets

    rows = [{"prompt": "a", "checks": ["true"]}, {"prompt": "b", "checks": ["false"]}]
    datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / "train.parquet"))
    assert load_items(str(tmp_path), "train", TerminalItem) == rows


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            '{"prompt": "a", "checks": ["x"]}\n{"prompt": "b"}\n',
            r"item 2 of .*, field 'checks'.*the item has prompt",
        ),
        ('{"prompt": "a", "checks": "true"}\n', r"item 1 of .*, field 'checks'"),
        ('{"prompt": "a", "checks": []}\n', r"field 'checks'"),
        ('{"prompt": \n', r"line 1"),
        ('["prompt"]\n', r"line 1"),
        ("", r"has no items"),
    ],
)
def test_what_does_not_fit_is_named(content, complaint, tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"env\.dataset: .*{complaint}"):
        load_items(str(path), "train", TerminalItem)


def test_a_missing_file_and_a_missing_dataset_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.jsonl"):
        load_items(str(tmp_path / "absent.jsonl"), "train", PromptItem)
    with pytest.raises(ConfigError, match=r"env\.dataset: cannot load"):
        load_items(str(tmp_path / "absent"), "train", PromptItem)


def test_a_key_is_the_id_or_a_hash_of_the_content():
    assert item_key({"id": 7, "prompt": "a"}) == "7"
    assert item_key({"prompt": "a", "n": 1}) == item_key({"n": 1, "prompt": "a"})
    assert item_key({"prompt": "a"}) != item_key({"prompt": "b"})
