"""Which tool-call format a model writes, found out from its chat template.

The template writes calls as the model was trained to, so the right parser reads one back out of the
template's own rendering. Signs in the template's source only say which parser to try first: templates mention
formats that they do not write.
"""

import logging

from inference.chat_template import ChatTemplate
from inference.conventions import SENTINEL, Conventions
from inference.probe import PROBE_TIME, PROBED_TOOL, TemplateReport
from tool_call_parsers import detect, get_parser
from tool_call_parsers.registry import PARSERS
from trajectories.errors import ConfigError

WITHOUT_TOOLS = "hermes"
"""Reads think blocks and plain text where there are no calls to read."""

logger = logging.getLogger(__name__)


def choose_parser(name: str | None, template: ChatTemplate, report: TemplateReport) -> str:
    """Return the name of the parser to use; one that was found out, or can't be right, is logged.

    Args:
        name: What the user chose; None to find it out.
        template: The model's chat template.
        report: What it was found to do.

    Raises:
        ConfigError: There is no parser ``name``, or none was named and none reads the template's calls.
    """
    if name is not None:
        get_parser(name)
    if not report.carries_tools:
        return name or WITHOUT_TOOLS
    written = _written_call(template, report.conventions)
    if name is not None:
        if not _reads(name, written):
            logger.warning("parser: %s does not read calls as %s writes them", name, template.name)
        return name
    detected = detect(template.source)
    for candidate in filter(None, [detected, *PARSERS]):
        if _reads(candidate, written):
            logger.info("parser: %s, found out from %s", candidate, template.name)
            return candidate
    raise ConfigError(
        f"parser: none reads the calls as {template.name} writes them ({written[:80]!r}…); "
        f"name the model's, one of {', '.join(PARSERS)}"
    )


def _written_call(template: ChatTemplate, conventions: Conventions) -> str:
    """Return what the template writes for an assistant message that calls the probed tool, and its result."""
    question = {"role": "user", "content": "question"}
    call = conventions.calls([("call_0", "probedTool", {"key": SENTINEL})])
    result = conventions.result("call_0", "probedTool", "result")
    prompt = template.render([question], [PROBED_TOOL], now=PROBE_TIME)
    told = template.render([question, call, result], [PROBED_TOOL], now=PROBE_TIME)
    if not told.startswith(prompt):  # it rewrites the beginning of what was said, such as an open think block
        prompt = template.render([question], [PROBED_TOOL], now=PROBE_TIME, generation_prompt=False)
    return told.removeprefix(prompt)


def _reads(name: str, written: str) -> bool:
    message = get_parser(name, [PROBED_TOOL]).parse(written)
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return calls == [("probedTool", {"key": SENTINEL})] and not message.errors
