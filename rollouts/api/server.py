"""The rollout API as an HTTP server: started, and drained before it stops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from rollouts.api.guard import explain_errors, only_this_machine, require_token
from rollouts.api.legacy_routes import LegacyRoutes
from rollouts.api.metrics import metrics_text
from rollouts.api.native_routes import NativeRoutes
from rollouts.api.service import Service
from rollouts.api.settings import ServerConfig
from trajectories.errors import ConfigError

DRAIN_S = 20.0
"""Requests that were begun get this long to end."""


@asynccontextmanager
async def running_server(config: ServerConfig) -> AsyncIterator[str]:
    """Serve until the block ends; gives the base URL.

    Ending, the server takes no new connections, lets those who wait for a batch go with none, and answers
    what was begun.

    Raises:
        ConfigError: The address, the token or the store can't be used.
    """
    token = config.token()
    service = Service(config.make_store(), config.limits)
    try:
        await service.open()
        app = make_app(service, config, token)
        runner = web.AppRunner(app, shutdown_timeout=DRAIN_S, access_log=None)
        await runner.setup()
        try:
            await _listen(runner, config)
            host = f"[{config.host}]" if ":" in config.host else config.host
            yield f"http://{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
    finally:
        await service.close()


async def _listen(runner: web.AppRunner, config: ServerConfig) -> None:
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        raise ConfigError(
            f"host, port: cannot listen on {config.host}:{config.port}: {error.strerror}"
        ) from error


def make_app(service: Service, config: ServerConfig, token: str | None) -> web.Application:
    """Put routes and guards together; the service is opened and closed by the caller."""
    guard = require_token(token) if token else only_this_machine
    app = web.Application(
        middlewares=[explain_errors(service), guard], client_max_size=config.max_body_mb * 2**20
    )
    app.add_routes(NativeRoutes(service).routes())
    app.add_routes(LegacyRoutes(service, allow_reset=config.allow_reset).routes())

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=metrics_text(service), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def drain(app: web.Application) -> None:
        service.drain()

    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", health)])
    app.on_shutdown.append(drain)
    return app
