"""Settings from all their sources: defaults < YAML file < environment variables < flags.

Every source goes through the same models, so a value that is unknown or does not fit is refused before any
work starts, wherever it came from, with the name of the setting and the nearest one that exists.
"""

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError, create_model
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsError, YamlConfigSettingsSource

from environments.config import EnvConfig
from rollouts.config import ENV_DELIMITER, ENV_PREFIX, Settings
from trajectories.errors import ConfigError


def load_settings(
    env_config: type[EnvConfig], program: str, flags: list[str], yaml_file: Path | None
) -> Settings:
    """Read the settings of a run.

    Args:
        env_config: Config class of the environment; the type of ``Settings.env``.
        program: Name for the help text; ``--help`` among the flags prints it and exits.
        flags: Arguments such as ``--env.group_size 8``.
        yaml_file: File with the same nesting; None for none.

    Raises:
        ConfigError: A setting is unknown, missing or does not fit.
    """
    settings_class = _settings_class(env_config, yaml_file)
    known = sorted(_paths(settings_class))
    _check_variables(known)
    try:
        source = CliSettingsSource(
            settings_class, cli_parse_args=flags, cli_prog_name=program, cli_exit_on_error=False
        )
        return settings_class(_cli_settings_source=source)  # type: ignore[call-arg]
    except SettingsError as error:
        unknown = re.search(r"unrecognized arguments: --([\w.-]+)", str(error))
        raise ConfigError(_unknown(unknown[1], known) if unknown else str(error)) from error
    except ValidationError as error:
        problems = [_problem(details, known) for details in error.errors(include_url=False)]
        raise ConfigError("; ".join(problems)) from error


def _settings_class(env_config: type[EnvConfig], yaml_file: Path | None) -> type[Settings]:
    if yaml_file is not None:
        _check_yaml(yaml_file)

    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(cls, settings_cls: type[BaseSettings], **sources: Any) -> Any:  # type: ignore[override]
            from_file = YamlConfigSettingsSource(settings_cls, yaml_file=yaml_file)
            return sources["init_settings"], sources["env_settings"], from_file

    return create_model("Settings", __base__=Sourced, env=(env_config, env_config()))


def _check_yaml(path: Path) -> None:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config: {path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {path} must hold a mapping with env, model, sandbox, run or serve")


def _check_variables(known: list[str]) -> None:
    """Refuse variables that name no setting; pydantic-settings ignores those with an unknown first part."""
    for variable in os.environ:
        if variable.startswith(ENV_PREFIX) and ENV_DELIMITER in variable:
            path = variable.removeprefix(ENV_PREFIX).lower().replace(ENV_DELIMITER, ".")
            if path not in known:
                raise ConfigError(f"environment variable {variable}: {_unknown(path, known)}")


def _paths(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Return the dotted path of every setting, through nested models and unions of them."""
    paths: set[str] = set()
    for name, info in model.model_fields.items():
        candidates = get_args(info.annotation) or (info.annotation,)
        nested = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        for inner in nested:
            paths |= _paths(inner, f"{prefix}{name}.")
        if not nested:
            paths.add(prefix + name)
    return paths


def _problem(details: Any, known: list[str]) -> str:
    location = [str(part) for part in details["loc"]]
    path = ".".join(location)
    if path not in known:
        # Inside a union of models pydantic adds the chosen kind to the location.
        path = ".".join(location[:1] + location[2:]) if len(location) > 2 else path
    if details["type"] == "extra_forbidden":
        return _unknown(path, known)
    if details["type"] == "missing":
        variable = ENV_PREFIX + path.upper().replace(".", ENV_DELIMITER)
        return f"{path} is not set: use --{path}, {variable} or the YAML file"
    return f"{path}: {details['msg']}"


def _unknown(path: str, known: list[str]) -> str:
    near = get_close_matches(path, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "--help lists all settings"
    return f"unknown setting {path}; {hint}"
