"""The folder of one run: its settings, its log of trajectories, and what is exported from it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from rollouts.config import Settings
from trajectories.errors import ConfigError


class RunFolder:
    """Where a run lives; a run that is started again must have the settings it was begun with.

    Rollouts of different settings under one name would be mixed into one data set unnoticed.
    """

    def __init__(self, settings: Settings, name: str):
        self.name = name
        self.path = settings.run.output_dir / name
        self._shaping = settings.model_dump(mode="json", exclude={"run", "serve"})
        self._run = settings.model_dump(mode="json", include={"run", "serve"})

    @property
    def trajectories(self) -> Path:
        """The log of trajectories, one JSON object a line."""
        return self.path / "trajectories.jsonl"

    @property
    def sharegpt(self) -> Path:
        """Training data in ShareGPT's form, exported from the log."""
        return self.path / "sharegpt.jsonl"

    @property
    def pushed(self) -> Path:
        """Log of the groups that the rollout API has."""
        return self.path / "pushed.log"

    @property
    def config_hash(self) -> str:
        """Hash of the settings that shape the data; size, place and pace of the run are not among them."""
        canonical = json.dumps(self._shaping, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def claim(self) -> None:
        """Make the folder and save the settings beside the data.

        Raises:
            ConfigError: The folder can't be written, or holds a run with other settings.
        """
        self._record(self._shaping)

    def claim_model(self, weights: str) -> None:
        """Save which weights make the data.

        Raises:
            ConfigError: The run was begun with other weights.
        """
        self._record({"weights": weights})

    def _record(self, entries: dict[str, Any]) -> None:
        """Put entries into ``config.yaml`` after checking that they agree with what it holds."""
        saved = self.path / "config.yaml"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = yaml.safe_load(saved.read_text()) or {} if saved.exists() else {}
            changed = _differences(held, entries)
            if changed:
                raise ConfigError(
                    f"run.name: {self.path} holds a run with another {', '.join(changed)}; "
                    "choose another run.name, or restore the setting"
                )
            unfinished = saved.with_suffix(".partial")
            unfinished.write_text(yaml.safe_dump({**held, **entries, **self._run}, sort_keys=False))
            unfinished.replace(saved)
        except OSError as error:
            raise ConfigError(f"run.output_dir: cannot write {self.path}: {error.strerror}") from error


def _differences(held: Any, wanted: Any, path: str = "") -> list[str]:
    """Return the dotted paths under which both have a value, but not the same."""
    if isinstance(held, dict) and isinstance(wanted, dict):
        return [
            difference
            for key in sorted(wanted.keys() & held.keys())
            for difference in _differences(held[key], wanted[key], f"{path}.{key}" if path else key)
        ]
    return [] if held == wanted else [path]
