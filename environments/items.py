"""Task items: plain dictionaries from a JSON Lines file or a `datasets` dataset."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonlines
from pydantic import BaseModel, ConfigDict, ValidationError

from backends.resources import Resources
from trajectories.errors import ConfigError

TaskItem = dict[str, Any]


class PromptItem(BaseModel):
    """The least an item has; fields that a model does not name are kept as they are."""

    model_config = ConfigDict(extra="allow")

    prompt: str
    image: str | None = None
    """What the item's sandbox starts from."""
    resources: Resources | None = None
    """What the item's sandbox may use."""


def load_items(dataset: str, split: str, item_model: type[BaseModel]) -> list[TaskItem]:
    """Read every item and check that it has what the environment needs.

    Args:
        dataset: Path of a ``.jsonl`` file, or a name or folder that `datasets.load_dataset` takes.
        split: Split of a `datasets` dataset.
        item_model: What each item must fit.

    Raises:
        ConfigError: It can't be read, is empty, or an item lacks a field or holds a wrong one.
    """
    items = _read_jsonl(Path(dataset)) if dataset.endswith(".jsonl") else _load_dataset(dataset, split)
    if not items:
        raise ConfigError(f"env.dataset: {dataset} has no items")
    for number, item in enumerate(items, 1):
        try:
            item_model.model_validate(item)
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in details["loc"])
            raise ConfigError(
                f"env.dataset: item {number} of {dataset}, field {field!r}: {details['msg']}; "
                f"the item has {', '.join(sorted(item)) or 'no fields'}"
            ) from error
    return items


def item_key(item: TaskItem) -> str:
    """Return the item's ``id``, or a hash of its content: stable over runs and orders."""
    if "id" in item:
        return str(item["id"])
    canonical = json.dumps(item, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read_jsonl(path: Path) -> list[TaskItem]:
    try:
        with jsonlines.open(path) as reader:
            return list(reader.iter(type=dict, skip_empty=True))
    except OSError as error:
        raise ConfigError(f"env.dataset: cannot read {path}: {error.strerror}") from error
    except jsonlines.InvalidLineError as error:
        raise ConfigError(f"env.dataset: {path}, line {error.lineno}: {error}") from error


def _load_dataset(name: str, split: str) -> list[TaskItem]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"env.dataset: {name!r} needs the extra: pip install 'lachesis-rl[datasets]'"
        ) from error
    try:
        path, *config = name.split(":")
        return [dict(row) for row in datasets.load_dataset(path, *config, split=split)]
    except Exception as error:
        # The library raises whatever its many loaders do; all of it means that this name can't be loaded.
        raise ConfigError(f"env.dataset: cannot load {name!r}, split {split!r}: {error}") from error
