from hypothesis import given
from hypothesis import strategies as st

from backends.output import Capture

chunks = st.lists(st.binary(max_size=60), max_size=30)


@given(chunks, st.integers(2, 100))
def test_head_and_tail_are_exactly_the_first_and_last_bytes(parts, limit):
    capture = Capture(limit)
    for part in parts:
        capture.add(part)
    whole = b"".join(parts)
    assert capture.total_bytes == len(whole)
    assert capture.truncated == (len(whole) > limit)
    kept = whole if len(whole) <= limit else whole[: limit // 2] + whole[-(limit - limit // 2) :]
    assert capture.data() == kept


@given(st.lists(st.text(max_size=20), max_size=30), st.integers(8, 100))
def test_text_never_splits_a_character_and_counts_what_it_omits(parts, limit):
    capture = Capture(limit)
    for part in parts:
        capture.add(part.encode(errors="replace"))
    whole = "".join(parts).encode(errors="replace")
    text = capture.text()
    if not capture.truncated:
        assert text.encode() == whole
        return
    head, note, tail = text.partition("\n[... ")
    count, _, tail = (note + tail).removeprefix("\n[... ").partition(" bytes omitted ...]\n")
    assert whole.startswith(head.encode()) or "\n[... " in whole.decode()
    assert len(head.encode()) + int(count) + len(tail.encode()) == len(whole)


@given(chunks, st.integers(2, 100))
def test_the_spill_file_holds_everything_and_exists_only_when_needed(tmp_path_factory, parts, limit):
    path = tmp_path_factory.mktemp("spill") / "output"
    capture = Capture(limit, path)
    for part in parts:
        capture.add(part)
    assert capture.close() == (path if capture.truncated else None)
    assert path.exists() == capture.truncated
    if capture.truncated:
        assert path.read_bytes() == b"".join(parts)
