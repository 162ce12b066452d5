"""Where a template's bridges begin, and the proof that they say what the template says.

A bridge is found after a stub of a conversation (see `bridge`). It is safe only if prompt, output and bridge
are together what the template writes of the whole conversation, token for token. Templates that count their
messages, repeat what was said or end their last message otherwise fail that; each is tried here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from inference.bridge import Bridge, NoBridge, Seam
from inference.chat_template import MessageDict
from inference.conventions import SENTINEL
from trajectories.errors import AlignmentError
from trajectories.messages import ToolSchema

_SYSTEM: MessageDict = {"role": "system", "content": "instructions"}


@dataclass(frozen=True, slots=True)
class SeamSearch:
    """Looks for the seam before a user's message, or before results of calls."""

    bridge: Bridge
    new: Sequence[MessageDict]
    """What the bridge is to lead to."""
    tools: Sequence[ToolSchema]
    now: datetime

    def find(self, *, earlier: Sequence[MessageDict], after_text: Seam | None) -> Seam:
        """Return the seam, once its bridge is proved to be exact.

        Args:
            earlier: A conversation that may come before any other.
            after_text: The seam after a message without calls, if it was found already.

        Raises:
            NoBridge: There is none, or it is not exact.
        """
        end_token = self._end_token(after_text)
        seam = Seam(end_token, self.bridge.encoder.control[end_token])
        text = self.bridge.text_between(self.new, self.tools, seam, now=self.now)
        if SENTINEL in text:
            raise NoBridge(f"behind {end_token} it repeats, or goes on with, what the assistant said")
        if not all(message["content"] in text for message in self.new):
            raise NoBridge(f"{end_token} ends an assistant message in last place only")
        if self._text(seam, self.tools, earlier) not in (text, None):
            raise NoBridge("what it writes depends on what was said before")
        if not self._keeps_tokens(seam, text):
            raise NoBridge(f"the tokenizer does not always keep {end_token} apart from what is around it")
        return replace(
            seam,
            needs_tools=text != self._text(seam, (), ()),
            needs_system=text != self._text(seam, self.tools, [_SYSTEM]),
        )

    def _end_token(self, after_text: Seam | None) -> str:
        stub = self.bridge.conventions.stub_before(self.new)
        ending = self.bridge.template.render(stub, self.tools, now=self.now, generation_prompt=False)
        spoken_from = max(ending.find(SENTINEL), 0)
        control = [match.group() for match in self.bridge.encoder.find_control(ending, spoken_from)]
        if SENTINEL not in ending or not control:
            raise NoBridge("no control token ends an assistant message")
        if self.new[0]["role"] != "tool":
            return control[0]
        if after_text and after_text.end_token in control:
            return after_text.end_token
        return control[-1]  # behind a call's arguments the format's own closing markers come first

    def _text(self, seam: Seam, tools: Sequence[ToolSchema], opening: Sequence[MessageDict]) -> str | None:
        """Return the bridge's text; None where the template gives none."""
        try:
            return self.bridge.text_between(self.new, tools, seam, now=self.now, opening=opening)
        except NoBridge:
            return None

    def _keeps_tokens(self, seam: Seam, text: str) -> bool:
        """Tell whether a whole conversation is tokenized as what comes before the bridge, and the bridge."""
        encoder, stub = self.bridge.encoder, self.bridge.conventions.stub_before(self.new)
        rendered = self.bridge.template.render([*stub, *self.new], self.tools, now=self.now)
        before = encoder.encode(rendered.removesuffix(text))
        try:
            whole = before + encoder.encode(text, after=seam.end_id)
        except AlignmentError:
            return False
        return before[-1] == seam.end_id and whole == encoder.encode(rendered)
