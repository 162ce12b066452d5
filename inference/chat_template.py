"""A model's chat template, rendered exactly as Hugging Face and the servers built on it render it.

Only Jinja is needed: no torch, no transformers. The clock is an argument, since templates that write today's
date would otherwise give one conversation two system prompts around midnight.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trajectories.errors import ConfigError

MessageDict = dict[str, Any]
"""A message as templates expect it: OpenAI's chat form, tool arguments as objects unless they want text."""

OURS = "hermes"
"""Name of the template shipped with this package for ChatML models whose own carries no tools."""


class TemplateRefusal(ConfigError):
    """The template raised on these messages."""


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: The Jinja text.
        variables: What it may read besides messages and tools: special tokens, ``enable_thinking``, ….
        name: How messages call it.
    """

    def __init__(
        self, source: str, *, variables: Mapping[str, Any] | None = None, name: str = "chat template"
    ):
        self.source = source
        self.name = name
        self.reads_clock = "strftime_now" in source
        """Whether the date can be in what it renders."""
        self._variables = dict(variables or {})
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"{name} is no valid Jinja: line {error.lineno}: {error.message}") from None

    def render(
        self,
        messages: Sequence[MessageDict],
        tools: Sequence[dict[str, Any]] = (),
        *,
        now: datetime,
        generation_prompt: bool = True,
    ) -> str:
        """Return the text of a conversation, by default up to where the model speaks next.

        Raises:
            TemplateRefusal: The template raised, or read what these messages do not have.
        """
        variables = {**self._variables, "strftime_now": now.strftime}
        try:
            return self._template.render(
                messages=list(messages),
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=generation_prompt,
                **variables,
            )
        except Exception as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise TemplateRefusal(f"{self.name} refuses messages of roles {roles}: {error}") from error


def shipped_template(name: str = OURS) -> str:
    """Return the source of a template shipped with this package.

    Raises:
        ConfigError: There is none of that name.
    """
    folder = resources.files("inference") / "templates"
    file = folder / f"{name}.jinja"
    if not file.is_file():
        names = sorted(item.name.removesuffix(".jinja") for item in folder.iterdir())
        raise ConfigError(f"no chat template {name!r}: give a path to a .jinja file or one of {names}")
    return file.read_text(encoding="utf-8")


def template_source(name_or_path: str | Path) -> str:
    """Return a template's source by the name of a shipped one or the path of a ``.jinja`` file.

    Raises:
        ConfigError: There is neither.
    """
    path = Path(name_or_path)
    if path.suffix == ".jinja" and path.is_file():
        return path.read_text(encoding="utf-8")
    return shipped_template(str(name_or_path))


class _GenerationBlocks(Extension):
    """Reads ``{% generation %}…{% endgeneration %}``, which only marks assistant text, as its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment


_ENVIRONMENT = _environment()
