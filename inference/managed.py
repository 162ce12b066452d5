"""A model client over a token engine: tokens in, tokens out, with the model's own chat template.

What can be wrong about a model (no tokenizer, a template that carries no tools, an unknown parser) is found
when the client starts; what is unusual about it stands in the client's ``report``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from inference.bridge import Bridge
from inference.chat_template import OURS, ChatTemplate, shipped_template, template_source
from inference.encoding import TextEncoder
from inference.engine import Engine
from inference.managed_session import HistoryPolicy, ManagedSession, Shared
from inference.model_files import ModelFiles, load_model_files
from inference.openings import Openings
from inference.parser_choice import choose_parser
from inference.probe import TemplateReport, probe
from tool_call_parsers import OpenReasoning
from trajectories.errors import ConfigError
from trajectories.messages import Message, ToolSchema


class ManagedClient:
    """Holds conversations with a token engine.

    Args:
        engine: Where tokens come from. The client starts and closes it.
        tokenizer: Folder or hub name of the model's tokenizer, or its files already read.
        parser: Name of the tool-call format the model writes; by default the one its chat template writes.
        calls_in_open_reasoning: What becomes of a call in a think block that the model never closed: an error
            that it is told, or a call.
        chat_template: Name of a shipped template or path of a ``.jinja`` file. By default the model's own,
            unless it carries no tools and the vocabulary is ChatML's: then the shipped ``hermes``.
        template_variables: What the template may read besides the conversation, such as ``enable_thinking``.
        history: What to do where the template rewrites history.
        trust_first_prompt: Let the messages a session is opened with write control tokens.
        clock: Tells the date to templates that write it; asked once a session.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: str | Path | ModelFiles,
        *,
        parser: str | None = None,
        calls_in_open_reasoning: OpenReasoning = "refuse",
        chat_template: str | Path | None = None,
        template_variables: Mapping[str, Any] | None = None,
        history: HistoryPolicy = "append",
        trust_first_prompt: bool = False,
        clock: Callable[[], datetime] = datetime.now,
    ):
        self.engine = engine
        self._parser = parser
        self._calls_in_open_reasoning: OpenReasoning = calls_in_open_reasoning
        self._history: HistoryPolicy = history
        self._trust_first_prompt = trust_first_prompt
        self._clock = clock
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._template_variables = dict(template_variables or {})
        self._ready: Shared | None = None

    @property
    def model(self) -> str:
        """The engine's model."""
        return self.engine.model

    @property
    def report(self) -> TemplateReport:
        """What the chat template was found to do."""
        return self._started().report

    @property
    def bridge(self) -> Bridge:
        """Turns messages into prompt ids."""
        return self._started().bridge

    @property
    def parser(self) -> str:
        """Name of the tool-call format that outputs are read in."""
        return self._started().parser

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a turn: the template's, and those the model's authors name."""
        return self._started().stop_ids

    async def start(self) -> None:
        """Start the engine, read the tokenizer and probe the chat template.

        Raises:
            ConfigError: One of them can't be used.
        """
        self._ready = await asyncio.to_thread(self._prepare)
        await self.engine.start()

    async def close(self) -> None:
        """Close the engine; idempotent."""
        await self.engine.close()

    @asynccontextmanager
    async def session(
        self, trajectory_id: str, messages: list[Message], tools: list[ToolSchema]
    ) -> AsyncIterator[ManagedSession]:
        """Open a conversation.

        Raises:
            ConfigError: There are tools but the template carries none.
        """
        shared = self._started()
        if tools and not shared.report.carries_tools:
            raise ConfigError(
                f"{shared.report.template} carries no tools: set chat_template, for instance to {OURS!r}"
            )
        yield ManagedSession(shared, trajectory_id, messages, tools)

    def _prepare(self) -> Shared:
        files = self._tokenizer
        if not isinstance(files, ModelFiles):
            files = load_model_files(files)
        encoder = TextEncoder(files.tokenizer)
        template, report = self._pick_template(files, encoder)
        bridge = Bridge(template, encoder, report.conventions)
        return Shared(
            engine=self.engine,
            bridge=bridge,
            openings=Openings(bridge),
            report=report,
            stop_ids=report.end_ids | files.stop_ids,
            parser=choose_parser(self._parser, template, report),
            calls_in_open_reasoning=self._calls_in_open_reasoning,
            history=self._history,
            trust_first_prompt=self._trust_first_prompt,
            clock=self._clock,
        )

    def _pick_template(self, files: ModelFiles, encoder: TextEncoder) -> tuple[ChatTemplate, TemplateReport]:
        variables = {**files.special_tokens, **self._template_variables}
        if self._chat_template is not None:
            source = template_source(self._chat_template)
            template = ChatTemplate(source, variables=variables, name=str(self._chat_template))
            return template, probe(template, encoder)
        if files.chat_template is None:
            raise ConfigError(
                f"the tokenizer has no chat template: set chat_template to {OURS!r} (for ChatML models) "
                "or to a .jinja file"
            )
        own = ChatTemplate(files.chat_template, variables=variables, name="the model's chat template")
        report = probe(own, encoder)
        if report.carries_tools or not {"<|im_start|>", "<|im_end|>"} <= encoder.control.keys():
            return own, report
        ours = ChatTemplate(shipped_template(), variables=variables, name=f"shipped template {OURS!r}")
        return ours, probe(ours, encoder)

    def _started(self) -> Shared:
        if self._ready is None:
            raise ConfigError("the client is not started: await client.start() first")
        return self._ready
