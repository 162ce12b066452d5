"""FunctionGemma: ``<start_function_call>call:n{k:<escape>text<escape>,i:3}<end_function_call>``."""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_parser import BlockParser
from tool_call_parsers.findings import Block, Broken, Call, Fault
from tool_call_parsers.json_body import decode_json
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Markers, Source, Steps
from trajectories.messages import ToolCall

_ESCAPE = "<escape>"
_HEAD = Markers(("call:",))
_NAME_ENDS = Markers(("{", "<", "\n"))
_BEGIN, _END = "<start_function_call>", "<end_function_call>"
_STRUCTURE = Markers(("{", "}", "[", "]", _ESCAPE, _BEGIN, _END))
_STRING_END = Markers((_ESCAPE,))
_TOKEN = re.compile(r"\s*(<escape>|[{}\[\],:]|[^{}\[\],:<\s][^{}\[\],:<]*)")
_MAX_DEPTH = 100


class FunctionGemmaFormat(BlockFormat):
    """The syntax: keys bare, strings between ``<escape>`` markers, everything else as JSON."""

    openers = (_BEGIN,)
    closers = (_END,)
    inner = ("call:",)
    ends = ("<end_of_turn>", "<start_function_response>", "<eos>")
    example = "<start_function_call>call:tool{argument:<escape>value<escape>}<end_function_call>"

    def read(self, src: Source, start: int, opener: str) -> Steps[Block | Broken | None]:
        """Read one call."""
        free = self.stands_free(src, start)
        pos = yield from src.past_blank(start + len(opener))
        if not (yield from src.at(_HEAD, pos)):
            return self.broken(src, f"After {opener} comes no call:name.", pos) if free else None
        name = yield from self.word(src, pos + len("call:"), _NAME_ENDS, "{")
        if isinstance(name, Broken):
            return name
        body_end = yield from self._body_end(src, name.end - 1)
        if isinstance(body_end, Broken):
            return body_end
        end = yield from self.close(src, body_end)
        if end is None:
            pos = yield from src.past_blank(body_end)
            return self.broken(src, f"After the arguments comes no {self.closers[0]}.", pos)
        try:
            arguments = _Reader(src.text[name.end - 1 : body_end]).value(0)
        except ValueError as error:
            fault = Fault(
                (start, end), "bad_structure", f"The arguments are not valid: {error}. {self.advice}"
            )
            return Block(end, [fault])
        return Block(end, [Call((start, end), name.text, cast(dict[str, Any], arguments))])

    def _body_end(self, src: Source, pos: int) -> Steps[int | Broken]:
        depth = 0
        while mark := (yield from src.until(_STRUCTURE, pos)):
            pos = mark.end()
            if mark.group() == _ESCAPE:
                closing = yield from src.until(_STRING_END, pos)
                if closing is None:
                    break
                pos = closing.end()
            elif mark.group() in (_BEGIN, _END):
                return self.broken(src, "A bracket of the arguments is not closed.", mark.start())
            else:
                depth += 1 if mark.group() in "{[" else -1
                if depth == 0:
                    return pos
        return self.broken(src, "", len(src.text))


class _Reader:
    """A reader of one body."""

    def __init__(self, text: str):
        self._text = text
        self._pos = 0

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError(f"they are nested more than {_MAX_DEPTH} levels deep")
        token = self._next()
        if token == _ESCAPE:
            end = self._text.index(_ESCAPE, self._pos)
            text, self._pos = self._text[self._pos : end], end + len(_ESCAPE)
            return text
        if token == "{":
            return self._object(depth)
        if token == "[":
            return self._list(depth)
        value = decode_json(token)
        if value is None and token.strip() != "null":
            raise ValueError(f"{token.strip()[:40]!r} is no value: write text between {_ESCAPE} markers")
        return value

    def _object(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while (key := self._key()) != "}":
            if self._next() != ":":
                raise ValueError(f"after the key {key!r} a colon is missing")
            if key in items:
                raise ValueError(f"the key {key!r} is given twice")
            items[key] = self.value(depth + 1)
            if not self._more("}"):
                break
        return items

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        if self._peek() == "]":
            self._next()
            return items
        items.append(self.value(depth + 1))
        while self._more("]"):
            items.append(self.value(depth + 1))
        return items

    def _key(self) -> str:
        token = self._next()
        if token != _ESCAPE:
            return token.strip()
        end = self._text.index(_ESCAPE, self._pos)
        key, self._pos = self._text[self._pos : end], end + len(_ESCAPE)
        return key

    def _more(self, closer: str) -> bool:
        token = self._next()
        if token not in (",", closer):
            raise ValueError(f"{closer!r} or a comma is missing")
        return token == ","

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._pos)
        return found[1] if found else ""

    def _next(self) -> str:
        found = _TOKEN.match(self._text, self._pos)
        if found is None:
            raise ValueError("a value is missing")
        self._pos = found.end()
        return found[1]


class FunctionGemma(BlockParser):
    """Calls of FunctionGemma."""

    def build_format(self, tools: ToolSchemas) -> FunctionGemmaFormat:
        """Build what reads this format."""
        return FunctionGemmaFormat(tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write the calls of one message."""
        return "".join(self.render_call(call) for call in calls)

    def render_call(self, call: ToolCall) -> str:
        """Write one call."""
        return f"<start_function_call>call:{call.name}{_written(call.arguments)}<end_function_call>"

    def render_result(self, call: ToolCall, content: str) -> str:
        """Write the result of a call."""
        value = f"{{value:{_written(content)}}}"
        return f"<start_function_response>response:{call.name}{value}<end_function_response>"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f"{_ESCAPE}{value}{_ESCAPE}"
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return "{" + ",".join(f"{key}:{_written(item)}" for key, item in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(item) for item in cast(list[Any], value)) + "]"
    return json.dumps(value)
