"""Token positions, with a tokenizer small enough to read: bytes, and the markers as tokens of their own."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tool_call_parsers import get_parser


class ByteTokenizer:
    """One token a byte; ``<tool_call>`` and its closing tag are added tokens."""

    def __init__(self):
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        self._backend = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
        self._backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._backend.decoder = decoders.ByteLevel()
        self.plain = Tokenizer.from_str(self._backend.to_str())
        tags = ("<tool_call>", "</tool_call>", "<|im_end|>")
        self._backend.add_special_tokens([AddedToken(tag) for tag in tags])

    def decode(self, token_ids):
        return self._backend.decode(list(token_ids), skip_special_tokens=False)

    def get_added_vocab(self):
        return {token.content: index for index, token in self._backend.get_added_tokens_decoder().items()}

    def encode(self, text):
        return self._backend.encode(text).ids


CALL = '<tool_call>\n{"name": "now", "arguments": {"who": "漢字 🙂"}}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer():
    return ByteTokenizer()


def test_a_call_knows_its_tokens(tokenizer):
    text = f"Größe 🙂: {CALL} 🙂"
    ids = tokenizer.encode(text)

    [call] = get_parser("hermes", tokenizer=tokenizer).parse(text, token_ids=ids).tool_calls

    assert tokenizer.decode(ids[slice(*call.token_span)]) == call.raw


def test_an_error_knows_its_tokens(tokenizer):
    text = "é <tool_call>\n{oops}\n</tool_call>"
    ids = tokenizer.encode(text)

    [error] = get_parser("hermes", tokenizer=tokenizer).parse(text, token_ids=ids).errors

    assert tokenizer.decode(ids[slice(*error.token_span)]) == error.raw


def test_a_marker_spelled_out_by_ordinary_tokens_is_no_marker(tokenizer):
    spelled = tokenizer.plain.encode(CALL).ids
    parser = get_parser("hermes", tokenizer=tokenizer)

    assert not parser.parse(CALL, token_ids=spelled).tool_calls
    assert parser.parse(CALL, token_ids=tokenizer.encode(CALL)).tool_calls
    assert parser.parse(CALL).tool_calls, "without ids the text decides"


def test_fed_token_by_token_the_positions_are_the_same(tokenizer):
    text = f"Größe 🙂: {CALL}"
    ids = tokenizer.encode(text)
    parser = get_parser("hermes", tokenizer=tokenizer)
    stream, told = parser.stream(), ""

    for end in range(1, len(ids) + 1):
        so_far = tokenizer.decode(ids[:end]).rstrip("\ufffd")
        stream.feed(so_far[len(told) :], token_ids=ids[end - 1 : end])
        told = so_far

    assert stream.finish() == parser.parse(text, token_ids=ids)


def test_an_end_of_turn_that_the_text_leaves_out_is_passed_over(tokenizer):
    ids = tokenizer.encode(CALL + "<|im_end|>")

    [call] = get_parser("hermes", tokenizer=tokenizer).parse(CALL, token_ids=ids).tool_calls

    assert call.token_span == (0, len(ids) - 1)


def test_ids_of_another_text_give_no_positions(tokenizer):
    [call] = get_parser("hermes", tokenizer=tokenizer).parse(CALL, token_ids=tokenizer.encode("x")).tool_calls

    assert call.token_span is None
