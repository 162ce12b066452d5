"""How much work a parse is, counted: function calls, and the characters that patterns and JSON scanners read.

Time would do, but it needs long texts and a quiet machine to show what grows with the square of the input.
"""

import gc
import importlib
import json
import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest


class Counter:
    """Counts of one stretch of work."""

    def __init__(self):
        self.calls = 0
        self.characters = 0

    def of(self, work: Callable[[], object]) -> int:
        """Run ``work`` and return how much it was."""
        self.calls = self.characters = 0
        gc.disable()  # what it calls is not the parser's work
        sys.setprofile(self._called)
        try:
            work()
        finally:
            sys.setprofile(None)
            gc.enable()
        return self.calls + self.characters

    def _called(self, frame, event, argument):
        self.calls += event in ("call", "c_call")


class CountedPattern:
    """A compiled pattern that counts what it reads."""

    def __init__(self, pattern: re.Pattern, counter: Counter):
        self._pattern = pattern
        self._counter = counter

    def search(self, text, pos=0):
        found = self._pattern.search(text, pos)
        self._counter.characters += (found.end() if found else len(text)) - pos
        return found

    def match(self, text, pos=0):
        found = self._pattern.match(text, pos)
        self._counter.characters += found.end() - pos if found else 1
        return found

    def fullmatch(self, text):
        self._counter.characters += len(text)
        return self._pattern.fullmatch(text)

    def finditer(self, text):
        self._counter.characters += len(text)
        return self._pattern.finditer(text)

    def sub(self, replacement, text):
        self._counter.characters += len(text)
        return self._pattern.sub(replacement, text)


def counted_decoder(counter: Counter, decoder: Any):
    """Make a JSON decoder count what it reads; its errors read the text once more, to number its lines."""
    inner = decoder.scan_once

    def scan_once(text, pos):
        try:
            value, end = inner(text, pos)
        except json.JSONDecodeError as error:
            counter.characters += 2 * error.pos - pos
            raise
        counter.characters += end - pos
        return value, end

    decoder.scan_once = scan_once
    return decoder


@contextmanager
def counted_parsers(counter: Counter):
    """The package ``tool_call_parsers``, imported anew, with its patterns and its JSON decoder counting."""
    package = "tool_call_parsers"
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package}
    compiled, decoder = re.compile, json.JSONDecoder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(re, "compile", lambda *given: CountedPattern(compiled(*given), counter))
        patch.setattr(json, "JSONDecoder", lambda **options: counted_decoder(counter, decoder(**options)))
        try:
            yield importlib.import_module(package)
        finally:
            for name in [name for name in sys.modules if name.split(".")[0] == package]:
                del sys.modules[name]
            sys.modules.update(kept)
