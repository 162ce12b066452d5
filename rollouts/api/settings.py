"""Settings of a rollout API server, from flags, a YAML file or the environment."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from rollouts.api.group_queue import QueueLimits
from rollouts.api.group_store import GroupStore
from rollouts.api.redis_store import RedisStore, without_password
from rollouts.api.service import ServiceLimits
from rollouts.api.sqlite_store import SqliteStore
from trajectories.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
HttpAddress = Annotated[str, Field(pattern="^https?://.")]


class ServerConfig(BaseModel):
    """A rollout API server."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; any but loopback needs a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    store: str = "data/rollouts.db"
    """File of the queue, or the URL of a Redis server (`redis://localhost:6379/0`)."""
    token_file: Path | None = None
    """File that holds the token every request must bring (`Authorization: Bearer …`)."""
    target_groups: int = Field(default=64, ge=1)
    """Groups the environments keep ready, together; at least two of the trainer's batches."""
    max_groups: int = Field(default=4096, ge=1)
    """Most groups in the queue; further pushes have to wait."""
    max_staleness: int | None = Field(default=None, ge=0)
    """Groups more policy versions behind are dropped instead of delivered; no bound if unset."""
    max_body_mb: int = Field(default=64, ge=1)
    """Largest body of a push in MiB, after decompression."""
    heartbeat_timeout_s: float = Field(default=60.0, gt=0)
    """An environment that was silent for longer is dead: no batch waits for its share."""
    allow_reset: bool = False
    """Serve the legacy route `GET /reset_data`, which empties the queue."""

    @property
    def limits(self) -> ServiceLimits:
        """How the service treats environments and trainers."""
        return ServiceLimits(
            QueueLimits(self.max_groups, self.max_staleness), self.target_groups, self.heartbeat_timeout_s
        )

    @property
    def shown_store(self) -> str:
        """The store as it may be shown, here and in a run's folder."""
        return without_password(self.store)

    @field_serializer("store")
    def _serialized_store(self, store: str) -> str:
        return without_password(store)

    def token(self) -> str | None:
        """Read the token.

        Raises:
            ConfigError: The file is missing or empty, or there is none where there must be one.
        """
        if self.token_file is not None:
            return read_token(self.token_file)
        if self.host not in LOOPBACK:
            raise ConfigError(f"host: listening on {self.host} needs a token_file; without one only loopback")
        return None

    def make_store(self) -> GroupStore:
        """Return the store that is configured, not opened yet.

        Raises:
            ConfigError: It needs a package that is missing.
        """
        if self.store.startswith(("redis://", "rediss://", "unix://")):
            return RedisStore(self.store)
        return SqliteStore(Path(self.store))


def read_token(path: Path) -> str:
    """Read a token from its file.

    Raises:
        ConfigError: The file can't be read or is empty.
    """
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"token_file: cannot read {path}: {error.strerror}") from error
    if not token:
        raise ConfigError(f"token_file: {path} is empty")
    return token
