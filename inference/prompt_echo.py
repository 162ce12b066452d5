"""The prompt ids a server echoes with every answer, read at the cost of the new ones.

A chat server that reports ids sends the whole prompt back at every turn. Nearly always it begins with the
prompt and output of the turn before, so those bytes are compared as they are and cut out before JSON is
decoded. Only bytes that are equal are cut: an echo that differs anywhere is decoded whole.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trajectories.tokens import TokenPrefix

_KEY = b'"prompt_token_ids"'
_OPENING = re.compile(rb"\s*:\s*\[\s*")


@dataclass(frozen=True, slots=True)
class PromptEcho:
    """Ids a conversation has come to, and the text the server wrote its prompt in."""

    ids: TokenPrefix
    _prompt: bytes = b""
    """The JSON of the last prompt's ids, without brackets."""
    _output: Sequence[int] = ()

    def cut(self, body: bytes) -> tuple[bytes, bool]:
        """Return an answer without the ids known from this echo, and whether its prompt begins with them.

        The key is looked for as it stands: inside a JSON string its quotes would be escaped. Where another
        object has the same key, nothing is cut.
        """
        start = _ids_start(body)
        if start is None or not self._prompt or body.count(_KEY) != 1:
            return body, False
        comma = _comma(self._prompt)
        known = comma.join([self._prompt, *(b"%d" % token_id for token_id in self._output)]) + comma
        if not body.startswith(known, start):
            return body, False
        return body[:start] + body[start + len(known) :], True

    def grown(self, prompt_ids: TokenPrefix, output_ids: Sequence[int], body: bytes) -> "PromptEcho":
        """Return the echo to expect after an answer, whose body is as it was received."""
        start = _ids_start(body)
        prompt = b"" if start is None else body[start : body.index(b"]", start)]
        return PromptEcho(prompt_ids.append(output_ids), prompt, output_ids)


def _ids_start(body: bytes) -> int | None:
    """Return where the first id stands; None where none does."""
    key = body.find(_KEY)
    opening = _OPENING.match(body, key + len(_KEY)) if key >= 0 else None
    return opening.end() if opening else None


def _comma(ids: bytes) -> bytes:
    """Return what the server writes between two ids."""
    return b", " if b", " in ids[:32] else b","
