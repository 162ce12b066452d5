"""`python -m trainers.grpo --config FILE`: GRPO against a rollout API and vLLM servers."""

import argparse
import asyncio
import sys
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inference.vllm_weights import VllmWeights
from rollouts.api.client import ApiError, RolloutClient
from rollouts.api.settings import HttpAddress, read_token
from trainers.api_source import LEASE_S, ApiSource
from trainers.grpo_config import GrpoConfig
from trainers.grpo_run import train
from trainers.hand_over import ThroughFolder
from trajectories.errors import ConfigError, ModelError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class RolloutApi(_Section):
    """Where groups come from."""

    url: HttpAddress = "http://127.0.0.1:8000"
    token_file: Path | None = None
    """File that holds the rollout API's token."""
    lease_s: float = Field(default=LEASE_S, gt=0)
    """How long a trainer that died holds its groups; while it lives, leases are renewed."""


class VllmServers(_Section):
    """Who samples: vLLM servers started with VLLM_SERVER_DEV_MODE=1, on this file system."""

    urls: list[HttpAddress] = Field(min_length=1)


class GrpoCommand(_Section):
    """What the file holds."""

    grpo: GrpoConfig
    rollouts: RolloutApi = RolloutApi()
    vllm: VllmServers


async def run(command: GrpoCommand) -> None:
    """Train until the steps are made; the weights of each version stand in ``output_dir/weights``.

    Raises:
        ConfigError: Something can't be used.
        ApiError: The rollout API refuses or is gone.
        ModelError: A vLLM server did not take its weights.
    """
    token = read_token(command.rollouts.token_file) if command.rollouts.token_file else None
    hand_over = ThroughFolder(command.grpo.output_dir / "weights", [VllmWeights(command.vllm.urls)])
    async with (
        RolloutClient(command.rollouts.url, token) as client,
        ApiSource(client, command.rollouts.lease_s) as source,
    ):
        await train(command.grpo, source, hand_over)


def read_command(path: Path) -> GrpoCommand:
    """Read the settings.

    Raises:
        ConfigError: The file can't be read, or a setting is unknown, missing or does not fit.
    """
    try:
        return GrpoCommand.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config: {path} is not YAML: {error}") from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, details['loc']))}: {details['msg']}"
            for details in error.errors(include_url=False)
        ]
        raise ConfigError(f"{path}: {'; '.join(problems)}") from error


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code; an error of use is one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m trainers.grpo", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file with grpo, rollouts and vllm")
    try:
        asyncio.run(run(read_command(parser.parse_args(arguments).config)))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSED
    except (ApiError, ModelError) as error:
        print(f"stopped: {error}; the same command goes on from the last checkpoint", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return INTERRUPTED
    return 0
