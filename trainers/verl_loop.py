"""An environment's rollouts as an agent loop of verl (0.9), which `VerlAgentLoop` names in its config.

verl makes one object for each rollout and asks it to ``run`` with the fields of a dataset row; those of one
worker process share environment, sandboxes and log. Tokens come from verl's own servers, in step with its
policy. A row names its task item in ``extra_info["item_key"]``. The file that verl's setting
``rollout.agent.agent_loop_config_path`` names holds

    - name: lachesis
      _target_: trainers.verl_loop.VerlAgentLoop
      _convert_: all
      environment: environments.terminal_env.TerminalEnv
      settings: {env: {tier: easy}, run: {output_dir: data}}
"""

import uuid
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from environments.base import BaseAgentEnv
from inference.managed import ManagedClient
from inference.model_files import load_model_files
from rollouts.api.scored_group import scored_rollout
from rollouts.config import RunConfig, SandboxConfig
from trainers.lent_engine import LentAnswer, LentCall, LentEngine
from trainers.opened_once import OpenedOnce
from trainers.prompt_response import split
from trainers.rollout_maker import RolloutMaker, open_rollouts
from trainers.trainer_sampling import trainer_sampling
from trajectories.errors import ConfigError, ModelError
from trajectories.trajectory import Trajectory

SGLANG_SEED = {"sglang": "sampling_seed"}
"""By verl's name of the rollout engine."""


class VerlSettings(BaseModel):
    """What stands beside ``name`` and ``_target_`` in verl's agent loop config."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    environment: str
    """Class, such as `environments.terminal_env.TerminalEnv`."""
    env: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment."""
    sandbox: SandboxConfig = SandboxConfig()
    """Where tools run."""
    run: RunConfig = RunConfig()
    """Name and folder of the trajectories; each worker process adds a name of its own."""
    parser: str | None = None
    """Format of the model's tool calls; the one its chat template writes if unset."""
    chat_template: str | None = None
    """Shipped template or .jinja file to use instead of the model's own."""

    def make_env(self) -> BaseAgentEnv:
        """Make the environment.

        Raises:
            ConfigError: There is no such class.
        """
        module, _, name = self.environment.rpartition(".")
        try:
            env_class = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"environment: {self.environment} can't be imported: {error}") from error
        return env_class(env_class.config_class(**self.env))


_opened: dict[str, OpenedOnce[RolloutMaker]] = {}
"""By settings: what the agent loops of this process share."""

_numbers = count()
"""Of rollouts, where verl's worker does not number those of a group."""


async def close_all() -> None:
    """End the sandboxes and close the logs of this process's agent loops; they open again when used."""
    while _opened:
        await _opened.popitem()[1].close()


class VerlAgentLoop:
    """One rollout; verl makes it.

    Args:
        trainer_config: verl's whole config, wrapped.
        server_manager: verl's ``LLMServerClient``.
        tokenizer: The model's, loaded from a folder or hub name.
        environment: See `VerlSettings`, as for ``settings``.
        settings: The rest of `VerlSettings`, as plain containers (``_convert_: all``).
        **_: What verl passes to agent loops that tokenize for themselves.
    """

    def __init__(
        self,
        trainer_config: Any,
        server_manager: Any,
        tokenizer: Any,
        environment: str,
        settings: dict[str, Any] | None = None,
        **_: Any,
    ):
        self._limits = trainer_config.config.actor_rollout_ref.rollout
        wanted = VerlSettings.model_validate({**(settings or {}), "environment": environment})
        key = wanted.model_dump_json()
        if key not in _opened:
            _opened[key] = OpenedOnce(partial(_rollouts, wanted, self._limits, server_manager, tokenizer))
        self._rollouts = _opened[key]

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
        """Roll one item out and return a verl ``AgentLoopOutput``, or several.

        verl's newer worker (it names a ``session_id``) takes a rollout of several rows whole, and computes
        the baseline from one of them; it leaves out a session that returns nothing, which is what a rollout
        does that the world failed. The older one takes one row, and has no way to leave a rollout out.

        Raises:
            ModelError: The world failed the rollout, and this worker has no way to leave it out.
        """
        rollouts = await self._rollouts()
        session = fields.get("session_id")
        group = str(fields.get("uid", "verl"))
        repetition = next(_numbers) if session is None else int(session)
        sampling = trainer_sampling(sampling_params, rollouts.env.config.sampling)
        key = fields["extra_info"]["item_key"]
        trajectory = await rollouts.make(group, key, repetition, sampling)
        outputs = agent_loop_outputs(trajectory, self._limits.prompt_length, self._limits.response_length)
        if session is not None:
            return outputs
        if not outputs:
            why = trajectory.error.message if trajectory.error else "no token was sampled"
            raise ModelError(f"{trajectory.trajectory_id} can't be trained on: {why}")
        outputs[0].extra_fields["rows_left_out"] += len(outputs) - 1
        return outputs[0]


def agent_loop_outputs(trajectory: Trajectory, prompt_length: int, response_length: int) -> list[Any]:
    """Return an ``AgentLoopOutput`` for each token row; none where the rollout can't be trained on.

    verl pads responses to ``response_length``: what was sampled beyond is not trained, and counted. A later
    row's prompt holds what was said before; longer than ``prompt_length``, it is left out and counted.

    Raises:
        ConfigError: The rollout's own prompt is longer than ``prompt_length``; cut, it would be another one.
    """
    from verl.experimental.agent_loop.agent_loop import (  # pyright: ignore[reportMissingImports]
        AgentLoopMetrics,
        AgentLoopOutput,
    )

    scored = scored_rollout(trajectory)
    timings = trajectory.timings
    outputs: list[Any] = []
    left_out = 0
    for row in scored.rows if scored else []:
        parts = split(row)
        if len(parts.prompt_ids) > prompt_length and outputs:
            left_out += 1
            continue
        if len(parts.prompt_ids) > prompt_length:
            raise ConfigError(
                f"rollout.prompt_length: is {prompt_length}, but {trajectory.trajectory_id} has a prompt of "
                f"{len(parts.prompt_ids)} tokens"
            )
        logprobs = parts.filled_logprobs()
        versions = [int(span.version) for span in row.policy_versions]
        output = AgentLoopOutput(
            prompt_ids=parts.prompt_ids,
            response_ids=parts.response_ids[:response_length],
            response_mask=parts.response_mask[:response_length],
            response_logprobs=None if logprobs is None else logprobs[:response_length],
            reward_score=trajectory.reward,
            num_turns=len(trajectory.messages),
            metrics=AgentLoopMetrics(
                generate_sequences=timings.model_s,
                tool_calls=timings.tools_s,
                compute_score=timings.reward_s,
            ),
            extra_fields={
                "turn_scores": trajectory.turn_rewards,
                "tool_rewards": [],
                "reward_extra_info": {},
                "min_global_steps": min(versions, default=None),
                "max_global_steps": max(versions, default=None),
                "trajectory_id": trajectory.trajectory_id,
                "tokens_left_out": sum(parts.response_mask[response_length:]),
            },
        )
        outputs.append(output)
    for output in outputs:
        output.extra_fields["rows_left_out"] = left_out
    return outputs


def _rollouts(settings: VerlSettings, limits: Any, server_manager: Any, tokenizer: Any) -> Any:
    files = load_model_files(tokenizer.name_or_path)
    engine = LentEngine(
        _asking(server_manager),
        model=str(tokenizer.name_or_path),
        vocab_size=files.vocab_size or len(tokenizer),
        context_length=limits.prompt_length + limits.response_length,
        logprobs_kind="processed",
        seed=SGLANG_SEED.get(limits.name, "seed"),
        fixed={"logprobs": True},
    )
    client = ManagedClient(engine, files, parser=settings.parser, chat_template=settings.chat_template)
    env = settings.make_env()
    name = f"{settings.run.name or env.name}-{uuid.uuid4().hex[:8]}"
    return open_rollouts(env, client, settings.sandbox, settings.run.model_copy(update={"name": name}))


def _asking(server_manager: Any) -> LentCall:
    async def ask(prompt_ids: list[int], params: dict[str, Any], session_id: str) -> LentAnswer:
        output = await server_manager.generate(session_id, prompt_ids=prompt_ids, sampling_params=params)
        if output.stop_reason in ("aborted", "abort"):
            raise ModelError("verl's server gave the request up")
        newest = output.extra_fields.get("global_steps")
        # older than the newest where the answer was resumed over a weight update
        oldest = output.extra_fields.get("min_global_steps", newest)
        return LentAnswer(output.token_ids, output.log_probs, _version(oldest), _version(newest))

    return ask


def _version(step: int | None) -> str | None:
    return None if step is None else str(step)
