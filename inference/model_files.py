"""A model's tokenizer, chat template and stop tokens, read from its Hugging Face folder or repository.

Only ``tokenizers`` is needed. ``tokenizer.json`` is what the model was trained with; classes that rebuild a
tokenizer from its vocabulary have changed ids between releases.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from trajectories.errors import ConfigError

_TOKENIZER = "tokenizer.json"
_CONFIGS = ["config.json", "tokenizer_config.json", "generation_config.json"]
_WANTED = [_TOKENIZER, "chat_template.jinja", *_CONFIGS]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What a session needs to know of a model."""

    tokenizer: Tokenizer
    chat_template: str | None = None
    """The model's own; None where it has none."""
    special_tokens: dict[str, str] = field(default_factory=dict)
    """``bos_token``, ``eos_token`` and their like, as templates read them."""
    stop_ids: frozenset[int] = frozenset()
    """Ids the model's authors say end its output."""
    padded_vocab_size: int | None = None
    """Number of ids the model has, if the files say so; often more than its tokenizer's."""

    @property
    def vocab_size(self) -> int:
        """Number of ids the model has: what its files say, else its tokenizer's."""
        return self.padded_vocab_size or self.tokenizer.get_vocab_size()


def load_model_files(model: str | Path, *, revision: str | None = None) -> ModelFiles:
    """Read a model's files; a name that is no folder is fetched from the Hugging Face hub.

    Raises:
        ConfigError: They can't be had, or there is no ``tokenizer.json``.
    """
    folder = Path(model)
    if not folder.is_dir():
        folder = _downloaded(str(model), revision)
    if not (folder / _TOKENIZER).is_file():
        raise ConfigError(
            f"{folder} has no {_TOKENIZER}: AutoTokenizer.from_pretrained(…).save_pretrained(…) writes one"
        )
    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    model_config, config, generation_config = (_json(folder / name) for name in _CONFIGS)
    special = _special_tokens(config)
    eos = [tokenizer.token_to_id(special["eos_token"])] if "eos_token" in special else []
    generation_eos = generation_config.get("eos_token_id", [])
    eos += generation_eos if isinstance(generation_eos, list) else [generation_eos]
    stop_ids = frozenset(token_id for token_id in eos if token_id is not None)
    padded = model_config.get("text_config", model_config).get("vocab_size")
    return ModelFiles(tokenizer, _chat_template(folder, config), special, stop_ids, padded)


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {item["name"]: item["template"] for item in template}
        return named.get("tool_use") or named.get("default")
    return template


def _downloaded(repository: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=_WANTED))
    except Exception as error:
        raise ConfigError(f"tokenizer {repository!r} is no folder and can't be fetched: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Return tokens by their name; ``add_bos_token`` and its like are switches, not tokens."""
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    texts = {name: value["content"] if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str) and text}
