"""``python -m rollouts.api``: a rollout API server of its own."""

import asyncio
import signal
import sys

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict, SettingsError

from rollouts.api.server import running_server
from rollouts.api.settings import ServerConfig
from trajectories.errors import ConfigError


class _Flags(BaseSettings, ServerConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
    model_config = SettingsConfigDict(
        extra="forbid",
        env_prefix="LACHESIS_SERVE__SERVER__",
        cli_hide_none_type=True,
        use_attribute_docstrings=True,
    )


def main() -> int:
    """Serve until interrupted; an error of use is one line on standard error."""
    try:
        source = CliSettingsSource(
            _Flags, cli_parse_args=sys.argv[1:], cli_prog_name="rollouts.api", cli_exit_on_error=False
        )
        asyncio.run(_serve(_Flags(_cli_settings_source=source)))  # type: ignore[call-arg]
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        print(f"error: {'; '.join(problems)}", file=sys.stderr)
        return 2
    except (ConfigError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(config: ServerConfig) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running_server(config) as url:
        print(f"rollout API on {url}, queue in {config.shown_store}", flush=True)
        await stop.wait()
        print("draining", flush=True)


if __name__ == "__main__":
    sys.exit(main())
