"""What is kept of a command's output: the head, the tail, the exact count, and everything on disk if wanted.

Memory is bounded by the limit whatever the command prints: what lies between head and tail is counted and
dropped, or written to a spill file.
"""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO


@dataclass(slots=True)
class Capture:
    """One output channel of one command."""

    max_bytes: int
    spill: Path | None = None
    """Where to write the whole output once it exceeds ``max_bytes``; None to drop the middle."""
    total_bytes: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: deque[bytes] = field(default_factory=deque[bytes])
    _tail_bytes: int = 0
    _file: BinaryIO | None = None

    def add(self, data: bytes) -> None:
        """Append output."""
        self.total_bytes += len(data)
        if self._file is None and self.spill is not None and self.truncated:
            self._file = self.spill.open("wb")
            self._file.write(self._head + b"".join(self._tail))
        if self._file is not None:
            self._file.write(data)
        room = self.max_bytes // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
            self._trim()

    def _trim(self) -> None:
        excess = self._tail_bytes - (self.max_bytes - self.max_bytes // 2)
        while excess > 0:
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            dropped = min(excess, len(first))
            self._tail_bytes -= dropped
            excess -= dropped

    @property
    def truncated(self) -> bool:
        """Whether some of the output was dropped."""
        return self.total_bytes > self.max_bytes

    def text(self) -> str:
        """Decode what was kept; a cut never splits a character."""
        head, tail = bytes(self._head), b"".join(self._tail)
        if not self.truncated:
            return (head + tail).decode(errors="replace")
        head, tail = head[: _last_boundary(head)], tail[_first_boundary(tail) :]
        omitted = self.total_bytes - len(head) - len(tail)
        note = f"\n[... {omitted} bytes omitted ...]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")

    def data(self) -> bytes:
        """Return what was kept, as bytes; the whole output unless `truncated`."""
        return bytes(self._head) + b"".join(self._tail)

    def close(self) -> Path | None:
        """Close the spill file and return its path; None if nothing was spilled."""
        if self._file is None:
            return None
        self._file.close()
        return self.spill


def _first_boundary(data: bytes) -> int:
    """Index of the first byte that is no UTF-8 continuation byte, looking at three at most."""
    return next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))


def _last_boundary(data: bytes) -> int:
    """Length of ``data`` without an incomplete UTF-8 sequence at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if length > back else len(data)
    return len(data)
