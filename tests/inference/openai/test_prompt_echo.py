"""What is cut out of an answer is exactly what both sides know."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.prompt_echo import PromptEcho
from trajectories.tokens import TokenPrefix

ids = st.lists(st.integers(0, 300), max_size=6)
commas = st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")])


def body(prompt, *, content="hi", separators=(",", ":"), **more):
    said = {"choices": [{"message": {"content": content}}], **more, "prompt_token_ids": prompt}
    return json.dumps(said, separators=separators).encode()


def echo_after(prompt, output, **options):
    return PromptEcho(TokenPrefix()).grown(TokenPrefix(prompt), output, body(prompt, **options))


@given(ids, ids, ids, st.text() | st.just('"prompt_token_ids":[1,2'), commas)
def test_a_prompt_that_continues_is_the_known_ids_and_the_rest(prompt, output, new, content, separators):
    echo = echo_after(prompt, output, content=content, separators=separators)
    whole = body([*prompt, *output, *new], content=content, separators=separators)
    shortened, cut = echo.cut(whole)
    read = json.loads(shortened)
    assert (echo.ids.to_list() if cut else []) + read["prompt_token_ids"] == [*prompt, *output, *new]
    assert read["choices"] == json.loads(whole)["choices"]
    if prompt and new and (len(prompt) > 1 or separators[0] == ","):
        assert cut


@given(ids, ids, ids, commas)
def test_any_other_prompt_is_read_whole(prompt, output, other, separators):
    whole = body(other, separators=separators)
    shortened, cut = echo_after(prompt, output, separators=separators).cut(whole)
    if other[: len(prompt) + len(output)] != [*prompt, *output]:
        assert not cut
    if not cut:
        assert shortened == whole


def test_a_longer_number_is_another_id():
    assert echo_after([5, 1], []).cut(body([5, 12, 3])) == (body([5, 12, 3]), False)


@pytest.mark.parametrize("place", [{"prompt_token_ids": [5, 6]}, [{"prompt_token_ids": [5, 6, 7]}]])
def test_a_key_of_another_object_is_not_mistaken_for_the_answers(place):
    whole = body([5, 6, 7], other=place)
    assert echo_after([5], [6]).cut(whole) == (whole, False)


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"prompt_token_ids":null}', b'{"prompt_token_ids"', b"\xff"]
)
def test_an_answer_without_ids_is_left_alone(answer):
    assert echo_after([5], [6]).cut(answer) == (answer, False)
    assert echo_after([5], [6]).grown(TokenPrefix([5]), [6], answer).cut(body([5, 6, 7]))[1] is False


def test_the_echo_grows_with_the_conversation():
    echo = echo_after([5], [6]).grown(TokenPrefix([5, 6, 7]), [8], body([5, 6, 7]))
    assert echo.ids == [5, 6, 7, 8]
    assert echo.cut(body([5, 6, 7, 8, 9])) == (body([9]), True)
