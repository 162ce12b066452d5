"""Text to ids: natural where it is harmless, and never a control token that nobody but the template wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from inference.encoding import TextEncoder
from tests.inference.sessions.families import trained
from tests.inference.sessions.strategies import many, texts
from trajectories.errors import AlignmentError

KINDS = ["chatml", "qwen", "llama3", "deepseek", "mistral"]


def natural(kind, text):
    return trained(kind).encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def encoders():
    return {kind: TextEncoder(trained(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@many
@given(data=st.data())
def test_harmless_text_keeps_its_natural_ids(encoders, kind, data):
    text = data.draw(texts())
    assert encoders[kind].encode(text) == natural(kind, text)


@pytest.mark.parametrize("kind", KINDS)
@many
@given(data=st.data())
def test_a_fragment_continues_as_it_would_in_the_whole_text(encoders, kind, data):
    encoder = encoders[kind]
    token, token_id = data.draw(st.sampled_from(sorted(encoder.control.items())))
    before, after = data.draw(texts()), data.draw(texts())
    whole = natural(kind, before + token + after)
    assert whole == natural(kind, before + token) + encoder.encode(after, after=token_id)


@pytest.mark.parametrize("kind", KINDS)
@many
@given(data=st.data())
def test_marked_text_never_gives_a_control_token(encoders, kind, data):
    encoder = encoders[kind]
    control = sorted(encoder.control)
    field = data.draw(texts()) + data.draw(st.sampled_from(control)) + data.draw(texts())
    mark = encoder.unused_mark([field])
    broken = encoder.broken(field, mark)
    assert not encoder.spells_control(broken)
    assert broken.replace(mark, "") == field
    start, end = control[0], control[-1]
    ids = encoder.encode(f"{start}\n{broken}{end}\n", mark=mark)
    assert [i for i in ids if i in encoder.control.values()] == [encoder.control[start], encoder.control[end]]


@pytest.mark.parametrize("kind", ["chatml", "qwen", "llama3", "deepseek"])
@many
@given(data=st.data())
def test_byte_level_text_decodes_to_itself(encoders, kind, data):
    text = data.draw(texts())
    if kind != "qwen":  # which normalizes to NFC
        assert encoders[kind].decode(encoders[kind].encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
@many
@given(data=st.data())
def test_sampled_control_tokens_stay_real_and_spelled_out_ones_spelled_out(encoders, kind, data):
    encoder = encoders[kind]
    control = sorted(encoder.control)
    piece = st.one_of(
        texts().map(encoder.encode),
        st.sampled_from(control).map(lambda token: [encoder.control[token]]),
        st.sampled_from(control).map(lambda token: [i for letter in token for i in encoder.encode(letter)]),
    )
    ids = [token_id for ids in data.draw(st.lists(piece, max_size=5)) for token_id in ids]
    text = encoder.decode(ids)
    mark = encoder.unused_mark([text])
    marked = encoder.sampled_text(ids, mark)
    again = encoder.encode(marked, mark=mark)
    sampled = [token_id for token_id in ids if token_id in encoder.control.values()]
    assert [token_id for token_id in again if token_id in encoder.control.values()] == sampled
    if kind != "mistral":  # whose tokenizer takes a space for the beginning of a text
        assert marked.replace(mark, "") == text


def test_a_leading_space_survives_decoding(encoders):
    encoder = encoders["mistral"]
    ids = encoder.encode(" hello", after=encoder.control["[/INST]"])
    assert encoder.decode(ids) == " hello"


def test_an_incomplete_character_decodes_to_a_replacement(encoders):
    encoder = encoders["chatml"]
    assert encoder.decode(encoder.encode("🙂")[:1]).endswith("\ufffd")


def test_merges_cross_no_control_token_but_do_cross_the_edge_of_a_field(encoders):
    encoder = encoders["chatml"]
    assert encoder.encode("a\n\nb") != encoder.encode("a\n") + encoder.encode("\nb")


def test_the_mark_is_a_character_that_no_text_holds(encoders):
    first = encoders["chatml"].unused_mark([])
    assert encoders["chatml"].unused_mark([first]) != first


def words(added, normalizer=None):
    vocab = {"<unk>": 0, "end": 1, "<end>": 2, "<": 3, ">": 4, "e": 5, "n": 6, "d": 7}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens([added])
    return TextEncoder(tokenizer)


def test_a_control_token_the_ordinary_vocabulary_can_spell_is_kept_apart():
    encoder = words(AddedToken("<end>", normalized=False))
    assert encoder.control["<end>"] == 2
    assert encoder.encode(encoder.broken("<end>", "\ue000"), mark="\ue000") == [3, 5, 6, 7, 4]


def test_a_spelling_that_only_normalizes_to_a_control_token_is_found():
    encoder = words(AddedToken("<end>", normalized=True), normalizers.NFKC())
    wide = "\uff1cend\uff1e"
    assert encoder.encode(wide) == [2]
    assert encoder.spells_control(wide)
    assert 2 not in encoder.encode(encoder.broken(wide, "\ue000"), mark="\ue000")


def test_added_runs_of_white_space_are_ordinary_text():
    tokenizer = Tokenizer.from_str(trained("chatml").to_str())
    tokenizer.add_tokens([AddedToken("    ", normalized=False)])
    encoder = TextEncoder(tokenizer)
    assert not encoder.spells_control("if x:\n    pass")
    space = tokenizer.token_to_id("    ")
    broken = encoder.broken("<|im_end|>    x", "\ue000")
    assert space in encoder.encode(broken, mark="\ue000")


def test_a_context_that_does_not_survive_is_a_bug_of_ours(encoders):
    tokenizer = Tokenizer.from_str(trained("chatml").to_str())
    tokenizer.add_special_tokens([AddedToken("<|im_end|>x", normalized=False)])
    encoder = TextEncoder(tokenizer)
    with pytest.raises(AlignmentError):
        encoder.encode("x", after=encoder.control["<|im_end|>"])
