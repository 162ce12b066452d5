"""From messages to prompt ids: a conversation's first prompt, and the bridge to each next one.

The prompt of turn k+1 is the prompt and output of turn k plus the *bridge*: what the template writes between
the end of an assistant message and the next one's beginning. It is found by rendering the new messages after
a short stub whose assistant message is a sentinel, and taking what follows the sentinel's end token. So the
template alone decides on every character, history costs nothing, and sampled ids are never touched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from inference.chat_template import ChatTemplate, MessageDict, TemplateRefusal
from inference.conventions import SENTINEL, Conventions, Safe, texts_of
from inference.encoding import TextEncoder
from trajectories.messages import Message, ToolSchema


@dataclass(frozen=True, slots=True)
class Seam:
    """Where an assistant message ends and a bridge begins."""

    end_token: str
    """The control token that ends the assistant message."""
    end_id: int
    needs_tools: bool = False
    """Whether the bridge's text depends on the tools."""
    needs_system: bool = False
    """Whether it depends on the system message, which some templates put into the last user message."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """An assistant message that a template is told in the model's own tokens, for want of a better form."""

    ids: Sequence[int]
    """Without the id that ended it."""


Told = Message | Sampled
"""What a conversation is rendered from."""


class NoBridge(TemplateRefusal):
    """The template gives no bridge to these messages; the text says why."""


class Bridge:
    """Turns messages into prompt ids by a model's own template.

    Args:
        template: The chat template.
        encoder: The model's tokenizer.
        conventions: How the template wants messages told.
    """

    def __init__(self, template: ChatTemplate, encoder: TextEncoder, conventions: Conventions):
        self.template = template
        self.encoder = encoder
        self.conventions = conventions

    def prompt(
        self,
        messages: Sequence[Told],
        tools: Sequence[ToolSchema],
        *,
        now: datetime,
        trusted: int = 0,
    ) -> list[int]:
        """Return the ids of a whole conversation, up to where the model speaks next.

        Args:
            messages: The conversation.
            tools: Its tools.
            now: The session's frozen clock.
            trusted: How many of the first messages may write control tokens in any field.

        Raises:
            TemplateRefusal: The template raised.
        """
        mark = self._mark(messages, tools, trusted=trusted)
        told = [self._tell(message, None) for message in messages[:trusted]]
        told += [self._tell(message, mark) for message in messages[trusted:]]
        return self.encoder.encode(self.template.render(told, tools, now=now), mark=mark)

    def between(
        self,
        new_messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        seam: Seam,
        *,
        now: datetime,
        ended_by: int | None,
        system: Message | None = None,
    ) -> list[int]:
        """Return the ids between a sampled assistant message and the next.

        Args:
            new_messages: What follows the assistant message.
            tools: The session's tools.
            seam: How such a message ends.
            now: The session's frozen clock.
            ended_by: The end token that was sampled. None where the turn was stopped before one: then the
                bridge begins with the seam's, which is given, not sampled, hence never trained.
            system: The message the session began with, if that is a system message.

        Raises:
            NoBridge: The template gives none for these messages.
        """
        beside = [system] if system and seam.needs_system else []
        mark = self._mark([*beside, *new_messages], tools)
        told = [self._tell(message, mark) for message in new_messages]
        opening = [self._tell(message, mark) for message in beside]
        text = self.text_between(told, tools if seam.needs_tools else (), seam, now=now, opening=opening)
        if ended_by is None:
            return [seam.end_id, *self.encoder.encode(text, mark=mark, after=seam.end_id)]
        return self.encoder.encode(text, mark=mark, after=ended_by)

    def text_between(
        self,
        told: Sequence[MessageDict],
        tools: Sequence[ToolSchema],
        seam: Seam,
        *,
        now: datetime,
        opening: Sequence[MessageDict] = (),
    ) -> str:
        """Return the text the template writes after an assistant message's end token and before the next.

        Raises:
            NoBridge: It refuses these messages, or drops the assistant message or its end.
        """
        try:
            stub = [*opening, *self.conventions.stub_before(told)]
            rendered = self.template.render([*stub, *told], tools, now=now)
        except TemplateRefusal as refusal:
            raise NoBridge(str(refusal)) from refusal
        sentinel = rendered.find(SENTINEL)
        if sentinel < 0:
            raise NoBridge("the template drops the assistant message before these")
        end = rendered.find(seam.end_token, sentinel)
        if end < 0:
            raise NoBridge(f"the template ends the assistant message before these without {seam.end_token}")
        return rendered[end + len(seam.end_token) :]

    def _tell(self, message: Told, mark: str | None) -> MessageDict:
        if isinstance(message, Sampled):
            return {"role": "assistant", "content": self.encoder.sampled_text(message.ids, mark)}
        return self.conventions.tell(message, self._safe(mark))

    def _mark(self, messages: Sequence[Told], tools: Sequence[ToolSchema], *, trusted: int = 0) -> str | None:
        """Return a character to break what these messages spell, and that nothing beside them holds.

        None where those behind the ``trusted`` ones spell nothing.
        """
        texts = [text for message in messages[trusted:] for text in self._texts_of(message)]
        if not any(map(self.encoder.spells_control, texts)):
            return None
        beside = msgspec.json.encode([messages, tools]).decode()
        return self.encoder.unused_mark([*texts, beside, self.template.source])

    def _texts_of(self, message: Told) -> Iterable[str]:
        return [self.encoder.decode(message.ids)] if isinstance(message, Sampled) else texts_of(message)

    def _safe(self, mark: str | None) -> Safe:
        return _as_is if mark is None else lambda text: self.encoder.broken(text, mark)


def _as_is(text: str) -> str:
    return text
