"""Sandboxes in which tools run, behind one contract."""

from backends.base import Acquisition, Command, ExecutionResult, Slot, ToolBackend, UnsafeArchive
from backends.fake import FakeBackend, FakeSlot
from backends.registry import available_backends, create_backend

__all__ = [
    "Acquisition",
    "Command",
    "ExecutionResult",
    "FakeBackend",
    "FakeSlot",
    "Slot",
    "ToolBackend",
    "UnsafeArchive",
    "available_backends",
    "create_backend",
]
