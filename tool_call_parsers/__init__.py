"""Completion text to messages and back, one format family a file."""

from tool_call_parsers.assembly import Delta, Event, OpenReasoning
from tool_call_parsers.base import Parser, ParserStream
from tool_call_parsers.registry import available_parsers, detect, get_parser
from tool_call_parsers.token_map import Tokenizer

__all__ = [
    "Delta",
    "Event",
    "OpenReasoning",
    "Parser",
    "ParserStream",
    "Tokenizer",
    "available_parsers",
    "detect",
    "get_parser",
]
