"""What can be set of a run: the environment, the model, the sandbox, and the run itself."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from environments.config import EnvConfig
from rollouts.runner import RunLimits
from rollouts.serve_config import ServeConfig
from tool_call_parsers import OpenReasoning

ENV_PREFIX = "LACHESIS_"
ENV_DELIMITER = "__"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class _TokenModel(_Section):
    """What can be set of a model whose text is written and read here."""

    parser: str | None = None
    """Format of the model's tool calls; the one its chat template writes if unset."""
    calls_in_open_reasoning: OpenReasoning = "refuse"
    """A call in a think block the model never closed: an error it is told, or `accept`ed as a call."""
    chat_template: str | None = None
    """Shipped template (`hermes`) or .jinja file to use instead of the model's own."""


class EmbeddedModel(_TokenModel):
    """A Hugging Face model folder, run in this process; needs no server."""

    kind: Literal["embedded"] = "embedded"
    path: str
    """Model folder; `python scripts/fetch_model.py` makes one."""


class OpenAIModel(_Section):
    """A server that speaks OpenAI's chat completions and parses tool calls itself."""

    kind: Literal["openai"]
    base_url: str
    """Root of the API, up to and including `/v1`; those of several equal servers, separated by commas."""
    name: str | None = None
    """Model name as the server knows it; the only one it serves if unset."""
    api_key: SecretStr | None = None
    """Bearer token, if the server wants one."""


class ManagedModel(_TokenModel):
    """A token server (vLLM or SGLang): ids in, ids and logprobs out; tool calls are parsed here."""

    kind: Literal["managed"]
    base_url: str
    """Server, without a path; several equal ones, separated by commas."""
    tokenizer: str
    """Folder or hub name of the model's tokenizer and chat template."""
    name: str | None = None
    """Model name as the server knows it; the only one it serves if unset."""
    api_key: SecretStr | None = None
    """Bearer token, if the server wants one."""
    history: Literal["append", "template"] = "append"
    """Where the template rewrites history: keep what was sampled, or start a new row from a new rendering."""


ModelConfig = EmbeddedModel | OpenAIModel | ManagedModel


class SandboxConfig(_Section):
    """Where tools run."""

    backend: str = "local"
    """`local` (bubblewrap), `docker`, `ssh`, `nomad` or `modal`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the backend and its pool, such as `{"memory_mb": 512}`."""


class RunConfig(_Section):
    """What a run is called, how large it is, and where its data goes."""

    name: str | None = None
    """Names the data folder and begins every trajectory id; the environment's name if unset."""
    output_dir: Path = Path("data")
    """Folder that holds one folder per run."""
    groups: int = Field(default=8, ge=1)
    """Task items to roll out."""
    max_concurrent: int = Field(default=16, ge=1)
    """Rollouts in flight at once."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts at a rollout before a failure of the world stands."""
    failure_limit: int = Field(default=8, ge=1)
    """The run stops if this many rollouts fail before the first one succeeds."""
    require_full_groups: bool = False
    """Leave groups with failed rollouts out of the training data."""

    @property
    def limits(self) -> RunLimits:
        """How the runner treats rollouts."""
        return RunLimits(self.max_concurrent, self.max_attempts, self.failure_limit)


def _embedded_by_default(value: Any) -> Any:
    return {"kind": "embedded", **value} if isinstance(value, dict) else value


class Settings(BaseSettings):
    """All settings of a run; ``env`` has the fields of the environment's own config class."""

    model_config = SettingsConfigDict(
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        use_attribute_docstrings=True,
    )

    env: EnvConfig
    """The environment."""
    model: Annotated[ModelConfig, Field(discriminator="kind"), BeforeValidator(_embedded_by_default)]
    """The model that acts."""
    sandbox: SandboxConfig = SandboxConfig()
    """Where tools run."""
    run: RunConfig = RunConfig()
    """Name, size and place of the run."""
    serve: ServeConfig = ServeConfig()
    """Feeding a trainer."""
