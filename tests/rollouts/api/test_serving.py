"""Serving: room is kept to, nothing that runs is cancelled, weights are waited for, restarts lose nothing."""

import asyncio
import os

import pytest

from rollouts.api.wire import Orders
from rollouts.pushed_log import PushedLog
from rollouts.runner import RunFailed
from tests.rollouts.api.serving import client_of, config_in
from tests.rollouts.api.small_run import NativeSink, a_turn, plan, small_serving
from trajectories.errors import ConfigError, ModelError


class ScriptedSink:
    """Takes everything; gives the orders it is told to."""

    def __init__(self, room: int = 4):
        self.room = room
        self.updating = False
        self.version = 0
        self.pushed = []
        self.most_in_flight = 0
        self._asked = asyncio.Condition()

    async def orders(self, in_flight):
        self.most_in_flight = max(self.most_in_flight, in_flight)
        async with self._asked:
            self._asked.notify_all()
        return Orders(self.version, self.updating, self.room, 60.0)

    async def asked_with(self, in_flight):
        async with self._asked:
            await self._asked.wait_for(lambda: self.most_in_flight >= in_flight)

    async def push(self, group):
        self.pushed.append(group)

    async def leave(self):
        pass


async def test_groups_arrive_with_rows_rewards_and_version(tmp_path):
    async with client_of(config_in(tmp_path)) as client:
        await client.publish(3)
        sink = NativeSink(client, "numbers", "i", weight=1.0, min_allocation=None, group_size=2)
        async with small_serving(sink, tmp_path / "run") as serving:
            await serving.run(plan())
        batch = await client.lease(10)
    groups = [leased.group for leased in batch.groups]
    assert {g.item_key: [r.reward for r in g.rollouts] for g in groups} == {
        str(n): [float(n), float(n)] for n in range(10)
    }
    assert all(g.policy_version == 3 and g.size == 2 and g.environment == "numbers" for g in groups)
    assert groups[0].rollouts[0].rows[0].token_ids == [1, 2, 3, 4, 5]


async def test_no_more_groups_are_in_flight_than_there_is_room_for(tmp_path):
    sink = ScriptedSink(room=2)

    async def slow(messages, tools):
        await asyncio.sleep(0.01)
        return a_turn()

    async with small_serving(sink, tmp_path, script=slow) as serving:
        await serving.run(plan())
    assert len(sink.pushed) == 10
    assert 1 <= sink.most_in_flight <= 2


async def test_shrinking_room_cancels_nothing_that_runs(tmp_path):
    sink = ScriptedSink(room=3)
    held = asyncio.Event()

    async def script(messages, tools):
        await held.wait()
        return a_turn()

    async with small_serving(sink, tmp_path, script=script, max_groups=3) as serving:
        running = asyncio.ensure_future(serving.run(plan()))
        await sink.asked_with(3)
        sink.room = 0
        await asyncio.sleep(0.2)
        held.set()
        await running
    assert [group.item_key for group in sink.pushed] == ["0", "1", "2"]
    assert all(len(group.rollouts) == 2 for group in sink.pushed)


async def test_no_model_call_begins_while_weights_change(tmp_path):
    sink = ScriptedSink()
    sink.updating = True
    calls = []

    async def script(messages, tools):
        calls.append(messages)
        return a_turn()

    async with small_serving(sink, tmp_path, script=script, max_groups=2) as serving:
        running = asyncio.ensure_future(serving.run(plan()))
        await asyncio.sleep(0.3)
        assert not calls
        sink.updating, sink.version = False, 5
        await running
    assert [group.policy_version for group in sink.pushed] == [5, 5]


async def test_a_process_started_again_goes_on_where_the_last_one_stopped(tmp_path):
    made = []

    async def script(messages, tools):
        made.append(messages[-1].content)
        return a_turn()

    first, second = ScriptedSink(), ScriptedSink()
    async with small_serving(first, tmp_path, script=script, max_groups=4) as serving:
        await serving.run(plan())
    async with small_serving(second, tmp_path, script=script, max_groups=6) as serving:
        await serving.run(plan())
    assert len(made) == 12
    assert sorted(g.item_key for g in first.pushed + second.pushed) == [str(n) for n in range(6)]
    assert len({g.key.split("/")[0] for g in first.pushed + second.pushed}) == 1


async def test_rollouts_finished_before_a_crash_are_not_made_again(tmp_path):
    class Dying(ScriptedSink):
        async def push(self, group):
            raise ConnectionError("killed here")

    made = []

    async def script(messages, tools):
        made.append(messages[-1].content)
        return a_turn()

    async with small_serving(Dying(room=1), tmp_path, script=script, max_groups=1) as serving:
        with pytest.raises(ConnectionError):
            await serving.run(plan())
    sink = ScriptedSink()
    async with small_serving(sink, tmp_path, script=script, max_groups=1) as serving:
        await serving.run(plan())
    assert made == ["0", "0"]
    assert len(sink.pushed) == 1


async def test_a_group_with_a_failed_rollout_is_pushed_short_or_withheld(tmp_path):
    failed = []

    async def script(messages, tools):
        if messages[-1].content == "1" and not failed:
            failed.append(True)
            raise ModelError("gone", retryable=False)
        return a_turn()

    sink = ScriptedSink(room=1)
    async with small_serving(sink, tmp_path / "short", script=script, max_groups=3) as serving:
        await serving.run(plan())
    assert [(g.size, len(g.rollouts)) for g in sink.pushed] == [(2, 2), (2, 1), (2, 2)]
    failed.clear()
    sink = ScriptedSink(room=1)
    changes = {"max_groups": 3, "require_full_groups": True}
    async with small_serving(sink, tmp_path / "full", script=script, **changes) as serving:
        await serving.run(plan())
    assert [g.item_key for g in sink.pushed] == ["0", "2"]
    assert serving.counts.withheld == 1


async def test_a_run_in_which_nothing_works_stops(tmp_path):
    script = [ModelError("down", retryable=False)] * 100
    async with small_serving(ScriptedSink(), tmp_path, script=script) as serving:
        with pytest.raises(RunFailed, match="down"):
            await serving.run(plan())


def test_a_torn_line_of_the_pushed_log_is_cut_off_and_the_run_keeps_its_name(tmp_path):
    path = tmp_path / "pushed.log"
    with PushedLog(path) as log:
        log.add("run/a")
        run_id = log.run_id
    path.write_bytes(path.read_bytes() + b"run/b")
    with PushedLog(path) as log:
        assert "run/a" in log and "run/b" not in log
        assert log.run_id == run_id
        log.add("run/b")
    with PushedLog(path) as log:
        assert "run/b" in log and len(log) == 2


def test_a_full_disk_is_a_clear_error_of_the_pushed_log_and_costs_no_line(tmp_path, monkeypatch):
    path = tmp_path / "pushed.log"
    with PushedLog(path) as log:
        log.add("run/a")
        write = os.write
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
        with pytest.raises(ConfigError, match="disk is full"):
            log.add("run/b")
        monkeypatch.undo()
    with PushedLog(path) as log:
        assert "run/a" in log and len(log) == 1
