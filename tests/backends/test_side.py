from hypothesis import given
from hypothesis import strategies as st

from backends.side import MAX_LINE_BYTES, SideChannel


def listen(*tokens):
    side, heard = SideChannel(), []
    for token in tokens:
        side.expect(token, lambda words, token=token: heard.append((token, words)))
    return side, heard


@given(st.lists(st.integers(1, 20), max_size=20))
def test_lines_arrive_whole_however_they_are_cut(sizes):
    side, heard = listen("a", "b")
    data = b"\ra end 0 kept\njunk\rb pong\n\runknown end 0\n\n\ra end 1 kept\n"
    for size in sizes:
        side.feed(data[:size])
        data = data[size:]
    side.feed(data)
    assert heard == [("a", ["end", "0", "kept"]), ("b", ["pong"]), ("a", ["end", "1", "kept"])]


def test_a_token_nobody_waits_for_says_nothing():
    side, heard = listen("a")
    side.forget("a")
    side.feed(b"a end 0\nb end 0\n")
    assert heard == []


def test_an_endless_line_is_dropped_and_the_next_one_heard():
    side, heard = listen("a")
    side.feed(b"x" * (MAX_LINE_BYTES + 1))
    side.feed(b"\na pong\n")
    assert heard == [("a", ["pong"])]
