"""From settings to the model client and the sandbox backend they name, started and stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backends import create_backend
from backends.base import ToolBackend
from inference.embedded import EmbeddedEngine
from inference.managed import ManagedClient
from inference.session import ModelClient
from rollouts.config import EmbeddedModel, ModelConfig, SandboxConfig
from trajectories.errors import ConfigError, SandboxUnavailable


@asynccontextmanager
async def open_model(config: ModelConfig) -> AsyncIterator[ModelClient]:
    """Start the configured model client; close it on exit.

    Raises:
        ConfigError: The model can't be reached or used.
    """
    client = _client(config)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def open_backend(config: SandboxConfig, max_slots: int) -> AsyncIterator[ToolBackend]:
    """Start the configured backend with room for ``max_slots`` rollouts; end every sandbox on exit.

    Raises:
        ConfigError: There is no such backend, or sandboxes can't be made here.
    """
    backend = create_backend(config.backend, **{"max_slots": max_slots, **config.options})
    try:
        await backend.start()
    except SandboxUnavailable as error:
        raise ConfigError(f"sandbox.backend: {config.backend} can't be used here: {error}") from error
    try:
        yield backend
    finally:
        await backend.stop()


def _client(config: ModelConfig) -> ModelClient:
    if isinstance(config, EmbeddedModel):
        return ManagedClient(EmbeddedEngine(config.path), config.path, parser=config.parser)
    from inference.openai_client import OpenAIClient

    key = config.api_key.get_secret_value() if config.api_key else None
    return OpenAIClient([config.base_url], config.name, api_key=key)
