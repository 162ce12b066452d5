"""An asynchronous context in a thread: opened, used, interrupted, closed; failures surface in the with."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from trainers.in_background import InBackground


@asynccontextmanager
async def context(log, *, opening=None, closing=None):
    log.append(("opened", threading.current_thread().name))
    if opening:
        raise opening
    yield asyncio.get_running_loop()
    log.append(("closed", threading.current_thread().name))
    if closing:
        raise closing


def test_work_runs_in_the_loop_the_context_was_opened_in_and_between_calls_it_runs_on():
    log = []
    with InBackground(context(log)) as background:
        ticked = threading.Event()
        background.held.call_soon_threadsafe(ticked.set)
        assert ticked.wait(timeout=10)

        async def which():
            return asyncio.get_running_loop()

        assert background.run(which()) is background.held
    (opened, there), (closed, as_well) = log
    assert (opened, closed) == ("opened", "closed")
    assert there == as_well != threading.current_thread().name


def test_what_opening_or_closing_raises_is_raised_in_the_with_statement():
    with pytest.raises(ValueError, match="no"), InBackground(context([], opening=ValueError("no"))):
        raise AssertionError("it is not entered")
    with pytest.raises(ValueError, match="late"), InBackground(context([], closing=ValueError("late"))):
        pass


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupt_while_the_context_opens_cancels_that_and_ends_the_thread(monkeypatch, begun):
    opening, log = threading.Event(), []

    @asynccontextmanager
    async def slow():
        try:
            opening.set()
            await asyncio.sleep(60)
            yield
        finally:
            log.append(threading.current_thread())

    def interrupted(futures, **_):
        assert not begun or opening.wait(timeout=10)
        raise KeyboardInterrupt

    monkeypatch.setattr("trainers.in_background.wait", interrupted)
    with pytest.raises(KeyboardInterrupt), InBackground(slow()):
        raise AssertionError("it is not entered")
    (thread,) = log
    assert not thread.is_alive()


def test_an_interrupt_of_the_wait_cancels_the_work_before_the_context_closes(monkeypatch):
    log = []
    with pytest.raises(KeyboardInterrupt), InBackground(context(log)) as background:
        started = threading.Event()

        async def work():
            try:
                started.set()
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                log.append(("cleaned up", ""))

        def interrupted(future):
            assert started.wait(timeout=10)
            raise KeyboardInterrupt

        monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
        try:
            background.run(work())
        finally:
            monkeypatch.undo()
    assert [what for what, _ in log] == ["opened", "cleaned up", "closed"]
