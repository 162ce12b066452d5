"""A parser whose calls stand between markers: its format says how, the machine reads the text."""

from abc import abstractmethod
from functools import cached_property

from tool_call_parsers.assembly import Assembly
from tool_call_parsers.base import Parser
from tool_call_parsers.block_format import BlockFormat
from tool_call_parsers.block_run import BlockRun
from tool_call_parsers.schema import ToolSchemas
from tool_call_parsers.source import Source, Steps


class BlockParser(Parser):
    """Parser of a family with a ``BlockFormat``."""

    @abstractmethod
    def build_format(self, tools: ToolSchemas) -> BlockFormat:
        """Build what reads one block of this format."""

    @cached_property
    def _format(self) -> BlockFormat:
        return self.build_format(self.schemas)

    @property
    def example(self) -> str:
        """How a call looks."""
        return self._format.example

    def steps(self, src: Source, out: Assembly, reasoning_open: bool) -> Steps[None]:
        """Read a completion to its end into ``out``."""
        return BlockRun(self._format, src, out).steps(reasoning_open)
