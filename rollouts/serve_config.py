"""What can be set of `serve`."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from rollouts.api.settings import HttpAddress, ServerConfig


class ServeConfig(BaseModel):
    """Feeding a trainer."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: HttpAddress | None = None
    """Rollout API to push to; if unset, one is started in this process, on loopback."""
    wire: Literal["native", "atropos"] = "native"
    """What the rollout API speaks; `atropos` is for that project's own server, version 0.4."""
    token_file: Path | None = None
    """File that holds the rollout API's token."""
    server: ServerConfig = ServerConfig()
    """The server that is started where `serve.url` is unset."""
    weight: float = Field(default=1.0, ge=0)
    """Share of the queue, relative to the trainer's other environments."""
    min_allocation: float | None = Field(default=None, ge=0, le=1)
    """Least share of every batch."""
    groups: int | None = Field(default=None, ge=1)
    """Stop after so many groups; unset: go on until interrupted."""
    evaluate_every: int | None = Field(default=None, ge=1)
    """Evaluate after so many policy versions, beside the training rollouts; unset: never."""
    evaluation_items: int = Field(default=32, ge=1)
    """Most evaluation items."""
    poll_s: float = Field(default=1.0, gt=0)
    """How often the rollout API is asked for room and policy version."""
