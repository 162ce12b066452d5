"""The side channel: answers from inside a sandbox that no command's output can imitate.

Every line is a carriage return, a token and an answer. A line whose token nobody waits for is dropped, and so
is what stands before the carriage return: whatever else might write to the channel can say nothing.
"""

from collections.abc import Callable

MAX_LINE_BYTES = 4096

Answer = Callable[[list[str]], None]


class SideChannel:
    """Splits the channel into lines and hands each to whoever waits for its token."""

    def __init__(self) -> None:
        self._waiting: dict[str, Answer] = {}
        self._partial = b""

    def expect(self, token: str, answer: Answer) -> None:
        """Call ``answer`` with the words after ``token``, for every such line until `forget`."""
        self._waiting[token] = answer

    def forget(self, token: str) -> None:
        """Drop later lines with ``token``."""
        self._waiting.pop(token, None)

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial = b""
        for line in lines:
            token, *words = line.rpartition(b"\r")[2].decode(errors="replace").split(" ")
            if answer := self._waiting.get(token):
                answer(words)
