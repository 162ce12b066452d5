"""What a chat template does, found out by trying it before the first rollout.

Templates are programs. Whether one trims content, writes today's date, refuses tool results or rewrites what
was already said can't be read off its name, and each of these makes a prompt differ from what was sampled. So
it is tried once, at start-up, and the answers are a report that can be printed and acted upon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product, takewhile
from typing import Literal

from inference.bridge import Bridge, NoBridge, Seam
from inference.chat_template import ChatTemplate, MessageDict, TemplateRefusal
from inference.conventions import SENTINEL, Conventions
from inference.encoding import TextEncoder
from inference.seams import SeamSearch
from trajectories.messages import ToolSchema

BridgeKind = Literal["user", "tool"]
"""What follows an assistant message: results of its calls, or anything else."""

Handling = Literal["verbatim", "trimmed", "json", "refused"]
"""What becomes of a content: as it is, without the white space around it, as a JSON string, or nothing."""

Rewrite = Literal["prompt", "reasoning"]
"""What a template changes of a prompt and the turn sampled on it: the prompt's own text, or it drops the
turn's reasoning."""

_THEN = datetime(2001, 2, 3)
PROBE_TIME = datetime(2024, 7, 26)
_USER: MessageDict = {"role": "user", "content": "question"}
PROBED_TOOL: ToolSchema = {
    "type": "function",
    "function": {
        "name": "probedTool",
        "description": "probed",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}
_REASONING = "lachesisReasoning"
_RESULT = "lachesisResult"


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What a template does; printed, it reads as a list."""

    template: str
    conventions: Conventions
    carries_tools: bool
    """It renders the tools' schemas, calls and results."""
    content: Mapping[str, Handling]
    """By role."""
    bos: str | None
    """The control token every prompt begins with, unless it begins a message anyway."""
    preamble: str
    """Text it puts before the first message unasked, such as a default system message."""
    writes_date: bool
    opens_reasoning: bool
    """The prompt ends inside an open think block."""
    seams: Mapping[BridgeKind, Seam]
    """Where bridges begin; a kind is missing where there is no safe bridge."""
    unsafe: Mapping[BridgeKind, str]
    """Why there is none."""
    rewrites: Mapping[BridgeKind, Rewrite]
    """What of the history it changes once these follow."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end an assistant message."""
        return frozenset(seam.end_id for seam in self.seams.values())

    def __str__(self) -> str:
        """Return the report as lines of text."""
        lines = [f"{self.template}:"]
        lines.append(f"  tools: {'rendered' if self.carries_tools else 'not carried'}; {self.conventions}")
        lines.append("  content: " + ", ".join(f"{role} {what}" for role, what in self.content.items()))
        lines.append(f"  begins with: {self.bos or 'no BOS'}" + (", writes the date" * self.writes_date))
        if self.preamble:
            lines.append(f"  unasked preamble: {self.preamble!r}")
        if self.opens_reasoning:
            lines.append("  the prompt opens a think block")
        for kind, seam in self.seams.items():
            needs = ", holds the tools" * seam.needs_tools + ", holds the system message" * seam.needs_system
            lines.append(f"  bridge to {kind}: safe, after {seam.end_token}{needs}")
        lines += [f"  bridge to {kind}: UNSAFE, {reason}" for kind, reason in self.unsafe.items()]
        lines += [f"  before {kind} messages it rewrites the {what}" for kind, what in self.rewrites.items()]
        return "\n".join(lines)


def probe(template: ChatTemplate, encoder: TextEncoder) -> TemplateReport:
    """Try a template with its tokenizer and report.

    Raises:
        TemplateRefusal: It can't even render a user message.
    """
    return _Probe(template, encoder).report()


class _Probe:
    """The questions put to one template."""

    def __init__(self, template: ChatTemplate, encoder: TextEncoder):
        self._template = template
        self._encoder = encoder
        found = self._find_conventions()
        self._carries_results = found is not None
        self._conventions = self._with_reasoning(found or Conventions())
        self._bridge = Bridge(template, encoder, self._conventions)

    def report(self) -> TemplateReport:
        opening = self._template.render([_USER], now=PROBE_TIME)
        carries_tools = self._carries_results and "probedTool" in self._try([_USER], [PROBED_TOOL])
        tools = [PROBED_TOOL] if carries_tools else []
        seams: dict[BridgeKind, Seam] = {}
        unsafe: dict[BridgeKind, str] = {}
        rewrites: dict[BridgeKind, Rewrite] = {}
        kinds: list[BridgeKind] = ["user", "tool"] if self._carries_results else ["user"]
        for kind in kinds:
            try:
                search = SeamSearch(self._bridge, self._new(kind), tools, PROBE_TIME)
                seams[kind] = search.find(earlier=self._earlier(), after_text=seams.get("user"))
            except TemplateRefusal as reason:
                unsafe[kind] = str(reason)
            if rewritten := self._rewrites(kind, tools):
                rewrites[kind] = rewritten
        return TemplateReport(
            template=self._template.name,
            conventions=self._conventions,
            carries_tools=carries_tools,
            content={role: self._handling(role) for role in ("system", "user", "assistant", "tool")},
            bos=self._bos(opening),
            preamble=self._preamble(opening, seams.get("user")),
            writes_date=opening != self._template.render([_USER], now=_THEN),
            opens_reasoning=opening.rstrip().endswith("<think>"),
            seams=seams,
            unsafe=unsafe,
            rewrites=rewrites,
        )

    def _find_conventions(self) -> Conventions | None:
        """Return the first way of telling a call and its result that is rendered whole; None if none is."""
        for arguments, empty, short in product(("object", "text"), ("", None), (False, True)):
            conventions = Conventions(arguments, empty, short_call_ids=short)
            if self._shows_calls(conventions, count=1):
                parallel = self._shows_calls(conventions, count=2)
                return Conventions(arguments, empty, short_call_ids=short, parallel_calls=parallel)
        return None

    def _shows_calls(self, conventions: Conventions, count: int) -> bool:
        results = self._results(conventions, count)
        calls = [(r["tool_call_id"], "probedTool", {"key": f"{SENTINEL}{i}"}) for i, r in enumerate(results)]
        text = self._try([_USER, conventions.calls(calls), *results], [PROBED_TOOL])
        shown = [f'"key": "{SENTINEL}{i}"' in text or f'"key":"{SENTINEL}{i}"' in text for i in range(count)]
        return all(shown) and all(result["content"] in text for result in results)

    def _results(self, conventions: Conventions, count: int) -> list[MessageDict]:
        return [conventions.result(f"call_{i}", "probedTool", f"{_RESULT}{i}") for i in range(count)]

    def _with_reasoning(self, conventions: Conventions) -> Conventions:
        """Tell reasoning in its field if that is rendered in last place, else inside the content."""
        thought = {**self._assistant(), "reasoning_content": _REASONING}
        if _REASONING in self._try([_USER, thought], generation_prompt=False):
            return conventions
        return replace(conventions, reasoning="inline")

    def _rewrites(self, kind: BridgeKind, tools: Sequence[ToolSchema]) -> Rewrite | None:
        new = self._new(kind)
        *history, spoken = self._conventions.stub_before(new)
        for before in (history, self._earlier()[:-1]):
            prompt = self._try(before, tools)
            later = self._try([*before, spoken, *new], tools)
            if not later:
                return None
            if not later.startswith(prompt):
                return "prompt"
        if self._conventions.reasoning == "field":
            thought = {**spoken, "reasoning_content": _REASONING}
        else:
            thought = {**spoken, "content": f"<think>\n{_REASONING}\n</think>\n\n{spoken['content'] or ''}"}
        if _REASONING not in self._try([*history, thought, *new], tools):
            return "reasoning"
        return None

    def _earlier(self) -> list[MessageDict]:
        """Return a conversation that may come before any other."""
        answer: MessageDict = {"role": "assistant", "content": "answer"}
        if not self._carries_results:
            return [_USER, answer]
        called = self._conventions.calls([("call_0", "probedTool", {"key": "value"})])
        return [_USER, called, *self._results(self._conventions, 1), answer]

    def _new(self, kind: BridgeKind) -> list[MessageDict]:
        if kind == "user":
            return [{"role": "user", "content": "another question"}]
        return self._results(self._conventions, 2 if self._conventions.parallel_calls else 1)

    def _handling(self, role: str) -> Handling:
        content = f' \n{_RESULT} "quoted"\n '
        if role == "tool":
            new = [self._conventions.result("call_0", "probedTool", content)]
            text = self._try([*self._conventions.stub_before(new), *new])
        elif role == "user":
            text = self._try([{"role": role, "content": content}])
        else:
            messages = [{"role": role, "content": content}, _USER]
            text = self._try(messages if role == "system" else [_USER, *messages])
        if content in text:
            return "verbatim"
        if content.strip() in text:
            return "trimmed"
        return "json" if f'{_RESULT} \\"quoted\\"' in text else "refused"

    def _bos(self, opening: str) -> str | None:
        first = self._encoder.find_control(opening)
        if not first or first[0].start() > 0:
            return None
        token = first[0].group()
        return token if opening.count(token) == 1 else None

    def _preamble(self, opening: str, seam: Seam | None) -> str:
        """Return what comes before the first message but not before a later one."""
        if seam is None:
            return ""
        try:
            later = self._bridge.text_between([_USER], (), seam, now=PROBE_TIME)
        except NoBridge:
            later = ""
        pairs = zip(reversed(opening), reversed(later), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return opening[: len(opening) - shared].removeprefix(self._bos(opening) or "")

    def _assistant(self) -> MessageDict:
        return {"role": "assistant", "content": SENTINEL}

    def _try(
        self,
        messages: Sequence[MessageDict],
        tools: Sequence[ToolSchema] = (),
        *,
        generation_prompt: bool = True,
    ) -> str:
        """Render; a refusal gives no text."""
        try:
            return self._template.render(messages, tools, now=PROBE_TIME, generation_prompt=generation_prompt)
        except TemplateRefusal:
            return ""
