"""The command line of every environment: ``serve | process | evaluate``, settings, exit codes."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

from environments.base import BaseAgentEnv
from rollouts.api.client import ApiError
from rollouts.evaluate import evaluate
from rollouts.load_settings import load_settings
from rollouts.process import process
from rollouts.runner import RunFailed
from rollouts.serve import serve
from trajectories.errors import ConfigError

COMMANDS = {"serve": serve, "process": process, "evaluate": evaluate}

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: nothing worked; the settings can't work; stopped from outside (start again to go on)."""


def main(env_class: type[BaseAgentEnv], arguments: list[str] | None = None) -> int:
    """Run one command and return the exit code; an error of use is one line on standard error."""
    parser = argparse.ArgumentParser(
        description=f"The {env_class.name} environment.", epilog="COMMAND --help shows every setting."
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="settings, such as --env.group_size 8")
    console, errors = Console(), Console(stderr=True)
    parsed = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s", handlers=[RichHandler(console=errors, show_path=False)])
    logging.getLogger("inference").setLevel(logging.INFO)  # tells what it found out about the model
    try:
        yaml_file, flags = _take_config(parsed.flags)
        program = f"{Path(sys.argv[0]).name} {parsed.command} [--config FILE]"
        settings = load_settings(env_class.config_class, program, flags, yaml_file)
        asyncio.run(_interruptible(COMMANDS[parsed.command](env_class, settings, console)))
    except ConfigError as error:
        errors.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return MISUSED
    except (RunFailed, ApiError) as error:
        errors.print(f"stopped: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        errors.print("interrupted; the same command goes on from here")
        return INTERRUPTED
    return 0


def _take_config(flags: list[str]) -> tuple[Path | None, list[str]]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    parsed, rest = parser.parse_known_args(flags)
    return parsed.config, rest


async def _interruptible(command: Coroutine[Any, Any, None]) -> None:
    """Run the command; SIGTERM cancels it as Ctrl-C does, so that sandboxes are released."""
    task = asyncio.ensure_future(command)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task
