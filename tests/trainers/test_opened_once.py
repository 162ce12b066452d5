"""A context opened at its first use, by one caller for all; closed in whatever state it is; opened again."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from trainers.opened_once import OpenedOnce


class Contexts:
    """Numbered as they are made; they note when they open and close; the first may fail."""

    def __init__(self, *, first_fails=False):
        self.log = []
        self.opening, self.may_open = asyncio.Event(), asyncio.Event()
        self._fails = first_fails
        self._made = 0

    @asynccontextmanager
    async def make(self):
        self._made += 1
        number = self._made
        self.opening.set()
        try:
            await self.may_open.wait()
        finally:
            self.log.append(("began", number))
        if self._fails and number == 1:
            raise OSError("not yet")
        yield number
        self.log.append(("closed", number))


async def test_all_callers_get_what_the_first_opened():
    contexts = Contexts()
    once = OpenedOnce(contexts.make)
    contexts.may_open.set()
    assert await asyncio.gather(once(), once(), once()) == [1, 1, 1]
    await once.close()
    await once.close()
    assert contexts.log == [("began", 1), ("closed", 1)]


async def test_what_still_opens_when_it_is_closed_is_not_left_open():
    contexts = Contexts()
    once = OpenedOnce(contexts.make)
    first = asyncio.create_task(once())
    await contexts.opening.wait()
    first.cancel()
    await asyncio.wait([first])
    await once.close()
    assert contexts.log == [("began", 1)], "the opening was cancelled"


async def test_after_it_was_closed_it_opens_anew():
    contexts = Contexts()
    contexts.may_open.set()
    once = OpenedOnce(contexts.make)
    assert await once() == 1
    await once.close()
    assert await once() == 2
    await once.close()
    assert contexts.log == [(what, number) for number in (1, 2) for what in ("began", "closed")]


async def test_what_is_asked_for_while_it_closes_opens_once_that_is_closed():
    log, may_close = [], asyncio.Event()

    @asynccontextmanager
    async def make():
        log.append("open")
        yield len(log)
        await may_close.wait()
        log.append("closed")

    once = OpenedOnce(make)
    await once()
    closing = asyncio.create_task(once.close())
    await asyncio.sleep(0)
    again = asyncio.create_task(once())
    await asyncio.wait([again], timeout=0.1)
    may_close.set()
    await closing
    assert await again == 3
    assert log == ["open", "closed", "open"]
    await once.close()


async def test_an_opening_that_failed_is_tried_again_by_the_next_caller():
    contexts = Contexts(first_fails=True)
    contexts.may_open.set()
    once = OpenedOnce(contexts.make)
    with pytest.raises(OSError, match="not yet"):
        await once()
    assert await once() == 2
    await once.close()
    assert contexts.log[-1] == ("closed", 2)
