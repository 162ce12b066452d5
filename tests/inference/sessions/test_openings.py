"""An opening is encoded once, and only for conversations that begin with exactly it."""

from dataclasses import replace
from datetime import datetime

import pytest

from inference.openings import KEPT, Openings
from tests.inference.sessions.driving import ASK, BY_NAME, CALL, SAMPLING, client_of, result
from tests.inference.sessions.families import load
from tests.inference.sessions.strategies import TOOL
from trajectories.messages import Message

NOW = datetime(2026, 5, 6)


class Counted:
    """A bridge that counts what it encodes."""

    def __init__(self, family):
        self._bridge = load(BY_NAME[family]).bridge
        self.template = self._bridge.template
        self.encoded = 0

    def prompt(self, *args, **options):
        self.encoded += 1
        return self._bridge.prompt(*args, **options)


def opened(openings, messages=ASK, tools=(TOOL,), now=NOW, trusted=0):
    return openings.prompt(messages, tools, now=now, trusted=trusted)


def test_equal_openings_are_encoded_once_and_share_their_memory():
    bridge = Counted("hermes")
    openings = Openings(bridge)
    first, second = opened(openings), opened(openings, [Message.user("question")])
    assert bridge.encoded == 1
    assert first == second == bridge.prompt(ASK, [TOOL], now=NOW)
    assert not first.append([1]).shares_memory_with(second.append([2]))
    assert opened(openings) == second


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [Message.user("question ")]},
        {"messages": [Message.system("question")]},
        {"tools": ()},
        {"tools": (TOOL, TOOL)},
        {"trusted": 1},
    ],
)
def test_whatever_differs_is_another_opening(other):
    bridge = Counted("hermes")
    openings = Openings(bridge)
    opened(openings)
    opened(openings, **other)
    assert bridge.encoded == 2


@pytest.mark.parametrize(("family", "times"), [("llama3", 2), ("hermes", 1)])
def test_the_clock_counts_where_the_template_reads_it(family, times):
    bridge = Counted(family)
    openings = Openings(bridge)
    for day in (1, 2, 1):
        opened(openings, now=datetime(2026, 5, day))
    assert bridge.encoded == times


def test_no_more_are_kept_than_are_likely_to_be_asked_for_again():
    bridge = Counted("hermes")
    openings = Openings(bridge)
    for index in [*range(KEPT + 1), 1, 0]:
        opened(openings, [Message.user(str(index))])
    assert bridge.encoded == KEPT + 2


async def test_siblings_share_the_opening_and_nothing_else():
    client = await client_of(CALL + "<|im_end|>", "Done<|im_end|>")
    client.engine._script = lambda prompt: [len(prompt) % 100 + 100, 2]
    turns = []
    for name in ("a", "b"):
        async with client.session(name, ASK, [TOOL]) as session:
            turns.append((await session.extend([], replace(SAMPLING, seed=1))).turn)
            turns.append((await session.extend([result(name)], SAMPLING)).turn)
    assert turns[0].prompt_ids == turns[2].prompt_ids
    assert turns[2].prompt_ids.shares_memory_with(turns[0].prompt_ids._base)
    assert turns[1].prompt_ids != turns[3].prompt_ids
    assert [call.prompt_ids for call in client.engine.calls] == [turn.prompt_ids.to_list() for turn in turns]
