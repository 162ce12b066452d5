"""Text to token ids, such that nobody but the template can write a control token.

A tool whose output holds ``<|im_end|>`` must not end its own message. Encoding every field apart from its
surroundings would be safe but gives ids the model never saw in training, since merges cross the seam. So a
field is left alone unless it spells an added token; one that does is broken by marks before rendering, and
the text between two real control tokens that holds marks is encoded, whole and without them, by a tokenizer
that has no added vocabulary.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain, groupby

from tokenizers import AddedToken, Tokenizer

from trajectories.errors import AlignmentError

_PRIVATE_USE = [chr(code) for code in range(0xE000, 0xF900)]
_GUARD = "\U000f1a5e"
"""Private token put before a fragment, so that a tokenizer does not take it for the beginning of a text."""


class TextEncoder:
    """A tokenizer that tells control tokens from text that spells them. Never adds special tokens by itself.

    Args:
        tokenizer: The model's tokenizer; its truncation and padding are switched off.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._natural = tokenizer
        self._natural.no_truncation()
        self._natural.no_padding()
        added = tokenizer.get_added_tokens_decoder()
        self.control: dict[str, int] = {
            token.content: token_id for token_id, token in added.items() if token.content.strip()
        }
        """Added tokens and their ids. Runs of whitespace that some vocabularies add are ordinary text."""
        self._control_texts = {token_id: token for token, token_id in self.control.items()}
        self._control_ids = frozenset(self._control_texts)
        self._spelled = _any_of(self.control)
        token = next(iter(self.control), "")
        self._first_control = token, [self.control[token]] if token else []
        self._pieces: dict[int, str] = {}
        self._normalizer = (
            tokenizer.normalizer if any(added[i].normalized for i in self._control_ids) else None
        )
        self._plain = _without_control(tokenizer)
        spaces = {token.content: token_id for token_id, token in added.items() if not token.content.strip()}
        self._renumbered = {self._plain.token_to_id(space): token_id for space, token_id in spaces.items()}
        self.vocab_size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())
        """One more than the largest id of the tokenizer; the model's own may be padded beyond it."""

    def text_of(self, token_id: int) -> str:
        """Return an added token's text."""
        return self._control_texts[token_id]

    def get_added_vocab(self) -> dict[str, int]:
        """Return the control tokens and their ids, as parsers ask for them."""
        return self.control

    def spells_control(self, text: str) -> bool:
        """Tell whether ``text`` holds the spelling of an added token."""
        return self._spelled.search(text) is not None or self._spells_when_normalized(text)

    def find_control(self, text: str, start: int = 0) -> list[re.Match[str]]:
        """Return every added token spelled in ``text`` from ``start`` on."""
        return list(self._spelled.finditer(text, start))

    def unused_mark(self, texts: Sequence[str]) -> str:
        """Return a character that none of ``texts`` holds, to break spelled tokens with."""
        used = set(chain.from_iterable(texts))
        return next(mark for mark in _PRIVATE_USE if mark not in used)

    def broken(self, text: str, mark: str) -> str:
        """Return ``text`` with every spelled added token broken by ``mark``."""
        if self._spells_when_normalized(text):
            return mark + mark.join(text)
        return self._spelled.sub(lambda match: mark + mark.join(match.group()), text)

    def encode(self, text: str, *, mark: str | None = None, after: int | None = None) -> list[int]:
        """Return the ids of a rendered text.

        Args:
            text: Control tokens that it spells are real, but for those broken by ``mark``.
            mark: What `broken` put into text that is not trusted.
            after: The control token before the text, if it continues one: some tokens swallow the space that
                follows them, and some tokenizers write a space before what they think begins a text.
        """
        head = [] if after is None else [after]
        if after is not None:
            text = self.text_of(after) + text
        ids = self._natural_ids(text) if mark is None or mark not in text else self._marked_ids(text, mark)
        if ids[: len(head)] != head:
            raise AlignmentError(f"text after control token {after} was encoded without it")
        return ids[len(head) :]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of sampled ids, control tokens included; that of single ids is kept."""
        if len(token_ids) != 1:
            return self._decoded(token_ids)
        text = self._pieces.get(token_ids[0])
        if text is None:
            text = self._pieces[token_ids[0]] = self._decoded(token_ids)
        return text

    def sampled_text(self, token_ids: Sequence[int], mark: str | None) -> str:
        """Return the text of sampled ids to be rendered again, every control token as it was sampled.

        One that the model sampled is real. One that it spelled out, as it may do with what a tool wrote, is
        broken by ``mark``.
        """
        runs = groupby(token_ids, key=self._control_ids.__contains__)
        texts = ((is_control, self.decode([*run])) for is_control, run in runs)
        return "".join(
            text if is_control or mark is None else self.broken(text, mark) for is_control, text in texts
        )

    def _decoded(self, token_ids: Sequence[int]) -> str:
        token, token_id = self._first_control
        text = self._natural.decode([*token_id, *token_ids], skip_special_tokens=False)
        return text.removeprefix(token)

    def _spells_when_normalized(self, text: str) -> bool:
        return self._normalizer is not None and bool(
            self._spelled.search(self._normalizer.normalize_str(text))
        )

    def _natural_ids(self, text: str) -> list[int]:
        return self._natural.encode(text, add_special_tokens=False).ids

    def _marked_ids(self, text: str, mark: str) -> list[int]:
        ids: list[int] = []
        trusted_from = end = 0
        for control in chain(self.find_control(text), [None]):
            start = control.start() if control else len(text)
            segment = text[end:start]
            if mark in segment:
                ids += self._natural_ids(text[trusted_from:end])
                ids += self._plain_ids(segment, mark)
                trusted_from = start
            end = control.end() if control else start
        return ids + self._natural_ids(text[trusted_from:])

    def _plain_ids(self, segment: str, mark: str) -> list[int]:
        ids = self._without_guard(segment.replace(mark, ""))
        if self._control_ids.isdisjoint(ids):
            return ids
        # The ordinary vocabulary can spell this token too: keep its characters from merging.
        pieces = (self._without_guard(piece) for piece in segment.split(mark))
        return [token_id for token_id in chain.from_iterable(pieces) if token_id not in self._control_ids]

    def _without_guard(self, text: str) -> list[int]:
        ids = self._plain.encode(_GUARD + text, add_special_tokens=False).ids[1:]
        return [self._renumbered.get(token_id, token_id) for token_id in ids] if self._renumbered else ids


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the longest of ``tokens`` at each place.

    They are grouped by their first two characters: some vocabularies add a thousand tokens that all begin
    with ``<``, and trying each at every ``<`` of a web page takes longer than tokenizing it.
    """
    longest_first = sorted(tokens, key=lambda token: (token[:2], len(token)), reverse=True)
    groups = (
        re.escape(start) + "(?:" + "|".join(re.escape(token[2:]) for token in group) + ")"
        for start, group in groupby(longest_first, key=lambda token: token[:2])
    )
    return re.compile("|".join(groups) or r"(?!)")


def _without_control(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of ``tokenizer`` that reads control tokens as the characters they are spelled with.

    What is left of its added vocabulary gets new ids: a tokenizer numbers added tokens by their order.
    """
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if not token["content"].strip()]
    spec["post_processor"] = None
    plain = Tokenizer.from_str(json.dumps(spec))
    plain.add_special_tokens([AddedToken(_GUARD, normalized=False)])
    return plain
