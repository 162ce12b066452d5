"""First prompts that were encoded before.

The rollouts of a group begin alike, and an opening with its tools is mostly much longer than what a turn adds
to it. So the first to begin pays for rendering and encoding, and the rest share its ids in memory too. An
opening is known again by all that went into it: nothing is assumed of the template.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from inference.bridge import Bridge, Told
from trajectories.messages import ToolSchema
from trajectories.tokens import TokenPrefix

KEPT = 64
"""Openings to remember; the groups in flight are seldom more."""


class Openings:
    """Encodes first prompts, each once while it is remembered.

    Args:
        bridge: What encodes them.
    """

    def __init__(self, bridge: Bridge):
        self._bridge = bridge
        self._known: dict[bytes, TokenPrefix] = {}

    def prompt(
        self, messages: Sequence[Told], tools: Sequence[ToolSchema], *, now: datetime, trusted: int
    ) -> TokenPrefix:
        """Return the ids of an opening; see `Bridge.prompt`."""
        clock = now if self._bridge.template.reads_clock else None
        key = msgspec.json.encode([messages, tools, clock, trusted])
        ids = self._known.get(key)
        if ids is None:
            ids = TokenPrefix(self._bridge.prompt(messages, tools, now=now, trusted=trusted))
            if len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)), None)
            self._known[key] = ids
        return ids.branch()
