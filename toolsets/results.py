"""What the model is shown of a result that is too long for it: head and tail, and where the rest is.

Where the content has named parts, only the longest text among them is cut, so that an exit code or a count
is never lost in the middle.
"""

from typing import Any

import msgspec

KEPT_CHARS = 4 * 2**20
"""Most characters of a long result that are kept in the sandbox; a longer one loses its middle."""

FOLDER = "/tmp/tool-results"


def as_text(content: Any) -> str:
    """Return content as the text of a tool message."""
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def longest_text(content: Any) -> str:
    """Return what of the content is worth keeping whole: its longest text, or all of it as JSON."""
    name = _longest_part(content)
    return as_text(content if name is None else content[name])


def preview(content: Any, max_chars: int, kept_at: str | None = None) -> str:
    """Return the content's text in at most about ``max_chars`` characters.

    Args:
        content: Text, or anything that JSON can hold.
        max_chars: What the model is shown; notes about what is missing come on top.
        kept_at: Path of the whole text, if it was kept.
    """
    name = _longest_part(content)
    if name is not None:
        room = max_chars - len(as_text({**content, name: ""}))
        while room >= max_chars // 8:
            text = as_text({**content, name: cut(content[name], room, kept_at)})
            if len(text) <= max_chars + 200:
                return text
            room = room * 3 // 4  # escapes make JSON longer than the text it holds
    return cut(as_text(content), max_chars, kept_at)


def cut(text: str, max_chars: int, kept_at: str | None = None) -> str:
    """Return the text with its middle left out where it is longer than ``max_chars``."""
    if len(text) <= max_chars:
        return text
    head, tail = text[: max_chars // 2], text[len(text) - max_chars // 2 :]
    where = f"; the whole text is in {kept_at}, read it in parts" if kept_at else ""
    return f"{head}\n[{len(text) - len(head) - len(tail)} characters left out{where}]\n{tail}"


def _longest_part(content: Any) -> str | None:
    texts = {k: v for k, v in content.items() if isinstance(v, str)} if isinstance(content, dict) else {}
    return max(texts, key=lambda name: len(texts[name]), default=None)
