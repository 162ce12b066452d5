"""The clean room: declared files arrive byte for byte, nothing else does, its failures are the world's."""

import asyncio
import io
import tarfile
from dataclasses import replace

import pytest

from environments.artefacts import Artefacts, ArtefactsRefused
from environments.clean_room import CleanRoomEnv
from environments.config import EnvConfig
from environments.reward import Reward
from inference.scripted import ScriptedClient
from rollouts import runner as runner_module
from rollouts.attempt import World
from rollouts.runner import RunLimits, Runner
from rollouts.specs import RolloutSpec
from rollouts.store import TrajectoryStore
from tests.environments.rolling import acting, roll_out
from trajectories.errors import ConfigError, SandboxDied


class Looking(CleanRoomEnv):
    """Scores by a command that is run in the room."""

    name = "looking"
    toolsets = ("terminal",)

    def __init__(self, look="true", taken=CleanRoomEnv.taken):
        super().__init__(EnvConfig(reward_timeout_s=120.0))
        self.look, self.taken = look, taken

    def format_prompt(self, item):
        return item["prompt"]

    async def compute_reward(self, item, result, ctx):
        looked = await ctx.exec(self.look)
        return Reward(float(looked.exit_code == 0), metrics={"lines": float(looked.stdout.count("\n"))})


ITEM = {"id": "item", "prompt": "go", "files": {"given.txt": "given\n", "sub/other.txt": "other\n"}}


async def test_what_the_agent_made_changed_and_deleted_is_so_in_the_room(backend):
    look = "[ $(cat new/a.txt given.txt) = achanged ] && ! [ -e sub/other.txt ] && [ -x run.sh ]"
    commands = (
        "mkdir new; printf a >new/a.txt",
        "echo changed >given.txt; rm sub/other.txt; touch run.sh; chmod +x run.sh",
    )
    assert (await roll_out(Looking(look), ITEM, backend, *commands)).reward == 1


async def test_odd_names_and_bytes_arrive(backend):
    names = r"""./-x ./--checkpoint=1 ./' a' ./'b"c' $'new\nline' $'\xff\xfe' './*' .hidden"""
    make = rf"touch {names}; printf '\0\xff' >bin"
    look = rf"""for name in {names}; do [ -f "$name" ] || exit 1; done; [ "$(od -An -tx1 bin)" = ' 00 ff' ]"""
    assert (await roll_out(Looking(look), ITEM, backend, make)).reward == 1


async def test_links_pipes_and_what_code_acts_on_unasked_stay_behind(backend):
    make = (
        "ln -s /etc/passwd link; ln -s sub linked; mkfifo pipe; mkdir -p .git/hooks __pycache__; touch kept "
        ".git/hooks/x __pycache__/x.pyc a.pth sub/sitecustomize.py ok; ln given.txt twin; chmod 000 kept"
    )
    left = ". ./given.txt ./ok ./sub ./sub/other.txt ./twin"
    look = f'[ "$(find . | LC_ALL=C sort | xargs)" = "{left}" ]'
    assert (await roll_out(Looking(look), ITEM, backend, make)).reward == 1


async def test_only_declared_paths_are_taken_and_the_rest_is_as_it_was(local):
    env = Looking(
        "[ $(cat given.txt)$(cat sub/other.txt) = givenmine ] && ! [ -e x ]", Artefacts(("sub", "none"))
    )
    assert (
        await roll_out(env, ITEM, local, "echo mine >sub/other.txt; echo no | tee given.txt x")
    ).reward == 1


@pytest.mark.parametrize("limits", [{"max_bytes": 1000}, {"max_files": 20}])
async def test_too_much_is_the_agents_own_doing(local, limits):
    env = Looking(taken=replace(CleanRoomEnv.taken, **limits))
    make = "for i in {1..50}; do printf %100s >f$i; done; truncate -s 1G sparse"
    trajectory = await roll_out(env, ITEM, local, make)
    assert (trajectory.error, trajectory.reward) == (None, 0)
    assert trajectory.metrics == {"artefacts_refused": 1}


async def test_a_file_in_the_place_of_the_judges_folder_is_the_agents_own_doing(backend):
    env = Looking(taken=Artefacts(without=("./sub/other.txt",)))
    trajectory = await roll_out(env, ITEM, backend, "rm -r sub; touch sub")
    assert (trajectory.error, trajectory.reward) == (None, 0)
    assert trajectory.metrics == {"artefacts_refused": 1}


def stream_of(*members, data=b""):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream


@pytest.mark.parametrize(
    "member",
    [
        ("a", tarfile.SYMTYPE, "b"),
        ("a", tarfile.LNKTYPE, "b"),
        ("a", tarfile.CHRTYPE, ""),
        ("a", tarfile.FIFOTYPE, ""),
        ("a", tarfile.GNUTYPE_SPARSE, ""),
        ("../a", tarfile.REGTYPE, ""),
        ("/a", tarfile.REGTYPE, ""),
        ("a/" * 600 + "a", tarfile.REGTYPE, ""),
    ],
)
def test_a_sandbox_that_sends_something_else_is_refused(member, tmp_path):
    with pytest.raises(ArtefactsRefused):
        Artefacts()._unpack(stream_of(member), tmp_path / "in")
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../../b", ""])
def test_paths_outside_the_workspace_are_refused_before_anything_runs(path):
    with pytest.raises(ConfigError, match="artefacts"):
        Artefacts((path,))


async def test_a_pool_with_one_place_serves_many_rollouts_at_once(local):
    env = Looking("[ $(cat given.txt) = changed ]")
    async with asyncio.timeout(120):
        rollouts = [roll_out(env, ITEM, local, "echo changed >given.txt") for _ in range(4)]
        assert [t.reward for t in await asyncio.gather(*rollouts)] == [1] * 4


async def test_a_process_of_the_agent_is_gone_before_the_judge_looks(local):
    ticking = "(while :; do touch tick; sleep 0.01; done) & disown"
    assert (
        await roll_out(
            Looking("sleep 0.2; ! pgrep -f tick && rm -f tick && sleep 0.2 && ! [ -e tick ]"),
            ITEM,
            local,
            ticking,
        )
    ).reward == 1


async def test_a_room_that_fails_is_the_worlds_failure_and_retried(local, tmp_path, monkeypatch):
    monkeypatch.setattr(runner_module, "LONGEST_WAIT_S", 0.0)

    class Unlucky(Looking):
        rooms = 0

        async def setup_room(self, item, room):
            self.rooms += 1
            if self.rooms == 1:
                raise SandboxDied("the room is gone")
            if self.rooms == 2:
                raise OSError("the room is full")
            await super().setup_room(item, room)

    spec = RolloutSpec("run/item/0", "run/item", ITEM, "item", 0, 1)
    with TrajectoryStore(tmp_path / "t.jsonl") as store:
        world = World(Unlucky(), ScriptedClient(acting("true")), local, "hash")
        await Runner(world, store, RunLimits(1, 3, 4)).run([spec])
        (trajectory,) = store
    assert (trajectory.reward, trajectory.attempt) == (1, 3)


async def test_a_cancelled_judging_leaves_no_sandbox(local):
    judging = asyncio.Event()

    class Slow(Looking):
        async def compute_reward(self, item, result, ctx):
            await ctx.exec("true")
            judging.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(roll_out(Slow(), ITEM, local))
    await judging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60), local.acquire("next"):
        pass
