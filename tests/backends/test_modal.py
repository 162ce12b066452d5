import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from grpclib import Status

from backends import create_backend
from backends.modal import ModalMaker
from backends.modal_account import ModalLimits
from backends.resources import USUAL
from tests.backends.host_processes import new_mark, sleeping, until
from tests.backends.modal_server import modal_server
from tests.backends.network import network_to
from trajectories.errors import ConfigError, SandboxDied, SandboxUnavailable

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def server(monkeypatch):
    async with modal_server() as server:
        server.use(monkeypatch)
        yield server


def modal(**options):
    return create_backend("modal", **options)


async def acquired(backend, task_id):
    return await backend.acquire(task_id)


async def busy(slot):
    """Start a command that does not end, and wait until it runs."""
    mark = new_mark()
    running = asyncio.create_task(slot.exec(f"echo partial; sleep {mark}"))
    await until(lambda: sleeping(mark))
    return running


def resident_mb():
    """Return how much memory this process has at the moment."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("soak")
async def test_a_hundred_slots_at_once_start_in_turn_under_the_cap(server):
    served = []

    async def use(number):
        async with backend.acquire(str(number)) as slot:
            served.append(number)
            assert (await slot.exec(f"echo {number}")).stdout == f"{number}\n"
            await everyone.wait()
            memory.append(resident_mb())

    everyone = asyncio.Barrier(100)
    memory_before, memory = resident_mb(), []
    async with modal(max_slots=100) as backend:
        await asyncio.gather(*(use(number) for number in range(100)))
    assert server.most_starting <= 25
    assert max(number - place for place, number in enumerate(served)) < 25, served  # whom it may overtake
    assert max(memory) - memory_before < 300
    assert server.running() == []


async def test_a_service_that_is_away_for_a_moment_costs_nothing(server):
    server.failures["SandboxCreateV2"] = [Status.UNAVAILABLE] * 2
    server.failures["TaskExecStart"] = [Status.UNAVAILABLE] * 2
    server.failures["TaskExecStdioRead"] = [Status.UNAVAILABLE] * 2
    async with modal() as backend, backend.acquire("a") as slot:
        server.failures["TaskExecStdinWrite"] = [Status.UNAVAILABLE] * 2
        assert (await slot.exec("echo x >>f; cat f")).stdout == "x\n"


async def test_a_lost_answer_has_nothing_started_or_typed_twice(server):
    server.lost_answers |= {"TaskExecStart": 3, "TaskExecStdinWrite": 6}
    async with modal() as backend, backend.acquire("a") as slot:
        assert not any(server.lost_answers.values())
        server.lost_answers["TaskExecStdinWrite"] = 1
        assert (await slot.exec("echo x >>f; cat f")).stdout == "x\n"
        assert (await slot.exec("cat f")).stdout == "x\n"


async def test_processes_of_one_sandbox_take_none_of_anothers_limit(server):
    """They did on the stand-in, so that beside another test's fork bomb no shell could start."""
    async with modal(warm=0, processes=60) as backend, backend.acquire("a") as slot:
        await slot.exec("for _ in {1..40}; do sleep 600 & done")
        async with backend.acquire("b") as other:
            assert (await other.exec("echo fine")).stdout == "fine\n"


async def test_a_service_that_stays_away_is_named_and_can_be_tried_again(server):
    async with modal() as backend:
        await backend.release(await backend.acquire("first"))
        server.failures["SandboxCreateV2"] = [Status.UNAVAILABLE] * 10
        with pytest.raises(SandboxUnavailable, match="ServiceError") as failure:
            await backend.acquire("a")
        assert failure.value.retryable
        server.failures.clear()
        async with backend.acquire("b") as slot:
            assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_an_expired_token_is_renewed_under_way(server):
    async with modal() as backend, backend.acquire("a") as slot:
        server.expire_tokens()
        assert (await slot.exec("echo x >>f; cat f")).stdout == "x\n"


async def test_a_rate_limit_is_waited_out(server):
    server.failures["SandboxCreateV2"] = [Status.RESOURCE_EXHAUSTED] * 2
    async with modal() as backend, backend.acquire("a") as slot:
        assert (await slot.exec("echo fine")).stdout == "fine\n"


async def test_a_sandbox_that_dies_mid_command_is_never_output(server):
    async with modal() as backend, backend.acquire("a") as slot:
        running = await busy(slot)
        (box,) = server.running()
        box.kill()
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxDied):
            await slot.exec("echo never", shell="other")


async def test_a_short_cut_of_the_network_loses_and_doubles_nothing(server):
    async with network_to(server.worker_port) as network:
        server.worker_port = network.port
        async with modal() as backend, backend.acquire("a") as slot:
            command = "for i in {1..300}; do echo $i; echo $i >>f; sleep 0.005; done; wc -l <f"
            running = asyncio.create_task(slot.exec(command))
            await asyncio.sleep(0.5)
            network.cut()
            numbers = (await running).stdout.split()
            assert numbers == [*map(str, range(1, 301)), "300"]


async def test_a_network_that_stays_cut_is_a_sandbox_that_died(server):
    async with network_to(server.worker_port) as network:
        server.worker_port = network.port
        async with modal() as backend, backend.acquire("a") as slot:
            running = await busy(slot)
            network.refuse()
            with pytest.raises(SandboxDied, match="stream to the sandbox was lost"):
                await running
        assert server.running() == []


async def test_a_sandbox_that_never_gets_ready_is_given_up_within_its_budget(server):
    server.never_ready = True
    with pytest.raises(SandboxUnavailable, match=r"ready within 1 s \(start_budget_s\)"):
        await modal(start_budget_s=1).start()
    assert [box.status for box in server.boxes.values() if not box.status] == []


async def test_a_create_that_answers_too_late_is_terminated(server):
    server.start_s = 2.0
    with pytest.raises(SandboxUnavailable, match="start_budget_s"):
        await modal(start_budget_s=1).start()
    assert len(server.created) == 1
    assert server.running() == []


async def test_sandboxes_that_were_given_up_count_toward_the_cap_while_modal_starts_them(server):
    server.start_s = 3.0
    maker = ModalMaker(ModalLimits(max_creating=2, start_budget_s=0.5))
    await maker.check()
    for _ in range(3):
        both = [maker.make(None, USUAL) for _ in range(2)]
        endings = await asyncio.gather(*both, return_exceptions=True)
        assert [type(ending) for ending in endings] == [SandboxUnavailable] * 2
    assert server.most_starting == 2
    await maker.close()
    assert server.running() == []


async def test_a_cancelled_start_is_cancelled_though_the_end_of_its_sandbox_is_not_confirmed(
    server, monkeypatch
):
    monkeypatch.setattr("backends.modal_account.CONFIRM_TIMEOUT_S", 0.5)
    async with modal() as backend:
        await backend.release(await backend.acquire("first"))
        server.calls.clear()
        server.lost_answers["TaskExecStart"] = 1000
        server.failures["SandboxTerminateV2"] = [Status.UNAVAILABLE] * 1000
        starting = asyncio.create_task(acquired(backend, "a"))
        await until(lambda: "TaskExecStart" in server.calls)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        server.failures.clear()
    assert server.running() == []


async def test_a_termination_that_is_not_confirmed_is_tried_again(server, monkeypatch):
    monkeypatch.setattr("backends.modal_account.RETRY_S", 0.1)
    async with modal() as backend:
        slot = await backend.acquire("a")
        server.failures["SandboxTerminateV2"] = [Status.UNAVAILABLE] * 100
        await backend.release(slot)
        assert backend.metrics.not_destroyed == 1
        (account,) = backend._maker.accounts
        assert len(account.unconfirmed) == 1
        server.failures.clear()
        await until(lambda: not account.unconfirmed)
        assert server.running() == []


HARNESS = """
import asyncio, sys
from backends import create_backend
from backends.modal import ModalMaker
from backends.modal_account import ModalLimits
from backends.resources import USUAL

async def main():
    sleep = f"sleep {sys.argv[2]}"
    async with create_backend("modal", lease_s=float(sys.argv[1])) as backend:
        async with backend.acquire("a") as slot:
            await slot.exec(f"(setsid {sleep} &); setsid nohup {sleep} & true")
            print("ready", flush=True)
            await slot.exec(sleep)

asyncio.run(main())
"""


async def killed_harness(lease_s):
    """Kill a harness amid a command, and return the mark of its processes."""
    mark = new_mark()
    harness = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HARNESS, str(lease_s), mark, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert await harness.stdout.readline() == b"ready\n"
    await until(lambda: len(sleeping(mark)) == 3)
    harness.send_signal(signal.SIGKILL)
    await harness.wait()
    return mark


async def test_sandboxes_of_a_killed_harness_end_by_their_lease(server):
    mark = await killed_harness(5)
    await until(lambda: not sleeping(mark) and not server.running())


async def test_sandboxes_of_a_killed_harness_are_ended_by_the_next_one(server):
    mark = await killed_harness(1000)
    (orphan,) = server.running()
    async with modal():
        assert orphan.status
        assert len(server.running()) == 1
    assert not sleeping(mark)


@pytest.fixture
def two_accounts(server, monkeypatch):
    profiles = {name: {"token_id": f"ak-{name}", "token_secret": "x"} for name in ("one", "two")}
    profiles["one"]["active"] = True
    monkeypatch.setattr("modal.config._user_config", profiles)


async def test_an_account_that_gives_nothing_leaves_it_to_the_others(server, two_accounts):
    async with modal(profiles=("one", "two")) as backend:
        server.closed.add("ak-one")
        slots = [await backend.acquire(str(n)) for n in range(3)]
        assert [(await slot.exec("echo fine")).stdout for slot in slots] == ["fine\n"] * 3
        server.closed.add("ak-two")
        with pytest.raises(SandboxUnavailable, match="the account is closed"):
            await backend.acquire("a")


async def test_sandboxes_are_spread_over_accounts(server, two_accounts):
    async with modal(profiles=("one", "two")) as backend:
        slots = [await backend.acquire(str(n)) for n in range(4)]
        assert server.accounts == {"ak-one": 2, "ak-two": 2}
        assert [(await slot.exec("echo fine")).stdout for slot in slots] == ["fine\n"] * 4
        with pytest.raises(SandboxUnavailable, match=r"Modal does not know three: .*name a profile"):
            await modal(profiles=("three",)).start()


async def test_an_account_modal_does_not_know_is_named_with_the_fix(server, monkeypatch):
    monkeypatch.setenv("MODAL_TOKEN_ID", "unknown")
    with pytest.raises(SandboxUnavailable, match="run `modal token new`") as failure:
        await modal().start()
    assert not failure.value.retryable


async def test_secrets_are_variables(server):
    async with modal(secrets=("mine",)) as backend, backend.acquire("a") as slot:
        assert (await slot.exec("echo $FROM_SECRET")).stdout == "of the account\n"


async def test_a_snapshot_is_an_image_to_start_from(server):
    async with modal() as backend:
        async with backend.acquire("a") as slot:
            await slot.exec("echo kept >file")
            image = await slot.machine.sandbox.snapshot()
        async with backend.acquire("b", image=image) as slot:
            assert (await slot.exec("cat file")).stdout == "kept\n"


async def test_images_are_those_of_a_registry_or_made_by_a_dockerfile(server, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian:12\nRUN apt-get install -y file\n")
    async with modal() as backend:
        for image in ("python:3.13-slim", f"dockerfile:{tmp_path / 'Dockerfile'}"):
            async with backend.acquire("a", image=image) as slot:
                assert (await slot.exec("echo fine")).stdout == "fine\n"
    assert any("FROM python:3.13-slim" in definition for definition in server.definitions)
    assert any("RUN apt-get install -y file" in definition for definition in server.definitions)


async def test_an_image_that_is_not_there_is_refused(server):
    async with modal() as backend:
        with pytest.raises(ConfigError, match="no Dockerfile at /nonexistent"):
            await backend.acquire("a", image="dockerfile:/nonexistent")
        with pytest.raises(SandboxUnavailable, match="no such image"):
            await backend.acquire("a", image="im-0000000000000000000000")


async def test_a_live_sandbox_works_where_there_are_credentials():
    if not (os.environ.get("MODAL_TOKEN_ID") or (Path.home() / ".modal.toml").exists()):
        pytest.skip("no Modal credentials here; set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET to run it")
    async with modal() as backend, backend.acquire("a") as slot:
        assert (await slot.exec("echo fine; sleep 600", timeout_s=2)).stdout == "fine\n"
        await slot.write_file("file", b"content")
        assert await slot.read_file("file") == b"content"
