"""What can be set of every environment."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolsets.policy import Policy, read_policy
from trajectories.turn import SamplingParams


class SamplingConfig(BaseModel):
    """How the model is sampled; every value is sent to the engine explicitly."""

    model_config = ConfigDict(extra="forbid")

    max_tokens: int = Field(default=512, ge=1)
    """Most tokens a turn."""
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0 means no limit."""

    def params(self, seed: int | None) -> SamplingParams:
        """Return the sampling parameters of one rollout."""
        return SamplingParams(self.max_tokens, self.temperature, self.top_p, self.top_k, seed)


class EnvConfig(BaseModel):
    """Settings shared by all environments; one of its own extends this class."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    group_size: int = Field(default=4, ge=1)
    """Rollouts per task item."""
    max_turns: int = Field(default=10, ge=1)
    """Most model calls in a rollout."""
    toolsets: list[str] | None = None
    """Toolsets the agent gets; the environment's own choice if unset."""
    toolset_chances: dict[str, Annotated[float, Field(ge=0, le=1)]] | None = None
    """Draw each group's toolsets, each by its own chance, instead of always giving the same."""
    disabled_tools: list[str] = Field(default_factory=list)
    """Toolsets or single tools that the agent does not get."""
    policy: Policy = Policy()
    """What the agent may do."""
    policy_file: str | None = None
    """YAML file to read `policy` from."""
    seed: int = 0
    """Seeds the order of items, generated items and each rollout's sampling."""
    sampling: SamplingConfig = SamplingConfig()
    """How the model is sampled."""
    system_prompt: str | None = None
    """System prompt of the task; part of the training data."""
    ephemeral_system_prompt: str | None = None
    """System prompt that steers the run but is never written to training data."""
    worked_examples: int = Field(default=0, ge=0)
    """How many of the environment's worked examples precede the task; never written to training data."""
    dataset: str | None = None
    """Items to use instead of generated ones: a .jsonl file, or what `datasets.load_dataset` takes."""
    dataset_split: str = "train"
    """Split of a `datasets` dataset."""
    tool_timeout_s: float = Field(default=30.0, gt=0)
    """Longest tool call; a longer one is stopped and the model told so."""
    turn_timeout_s: float = Field(default=300.0, gt=0)
    """Longest model call; a longer one fails the attempt."""
    rollout_timeout_s: float = Field(default=1200.0, gt=0)
    """Longest conversation; a longer one stops with `deadline` and is scored as it stands."""
    reward_timeout_s: float = Field(default=60.0, gt=0)
    """Longest reward computation; a longer one fails the attempt."""
    max_result_chars: int = Field(default=8000, ge=100)
    """Longest tool result the model is shown; the middle of a longer one is left out."""

    @model_validator(mode="before")
    @classmethod
    def _with_policy(cls, settings: Any) -> Any:
        """Put the policy of `policy_file` in its place, so that the settings that are kept hold all of it."""
        if not isinstance(settings, dict) or not settings.get("policy_file"):
            return settings
        if settings.get("policy"):
            raise ValueError("set policy or policy_file, not both")
        return {**settings, "policy": read_policy(settings["policy_file"]), "policy_file": None}
