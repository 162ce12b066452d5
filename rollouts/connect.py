"""From settings to the model client and the sandbox backend they name, started and stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from backends import create_backend
from backends.base import ToolBackend
from inference.detect import connect
from inference.embedded import EmbeddedEngine
from inference.managed import ManagedClient
from inference.model_files import load_model_files
from inference.openai_client import OpenAIClient
from inference.session import ModelClient
from rollouts.config import EmbeddedModel, ModelConfig, OpenAIModel, SandboxConfig
from trajectories.errors import ConfigError, SandboxUnavailable


@asynccontextmanager
async def open_model(config: ModelConfig) -> AsyncIterator[ModelClient]:
    """Start the configured model client; close it on exit.

    Raises:
        ConfigError: The model can't be reached or used.
    """
    try:
        client = await _client(config)
    except ConfigError as error:
        raise ConfigError(f"model: {error}") from error
    async with started(client):
        yield client


@asynccontextmanager
async def started(client: ModelClient) -> AsyncIterator[ModelClient]:
    """Start a model client; close it on exit.

    Raises:
        ConfigError: The model can't be reached or used.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        try:
            await client.start()
        except ConfigError as error:
            raise ConfigError(f"model: {error}") from error
        yield client


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


async def _client(config: ModelConfig) -> ModelClient:
    if isinstance(config, EmbeddedModel):
        engine = EmbeddedEngine(config.path)
        return ManagedClient(
            engine,
            config.path,
            parser=config.parser,
            calls_in_open_reasoning=config.calls_in_open_reasoning,
            chat_template=config.chat_template,
        )
    urls = config.base_url.split(",")
    key = config.api_key.get_secret_value() if config.api_key else None
    if isinstance(config, OpenAIModel):
        return OpenAIClient(urls, config.name, api_key=key)
    files = await asyncio.to_thread(load_model_files, config.tokenizer)
    engine = await connect(
        urls,
        vocab_size=files.vocab_size,
        model=config.name,
        headers={"Authorization": f"Bearer {key}"} if key else None,
    )
    return ManagedClient(
        engine,
        files,
        parser=config.parser,
        calls_in_open_reasoning=config.calls_in_open_reasoning,
        chat_template=config.chat_template,
        history=config.history,
    )
