"""The loop: what it trains, what it leaves out and counts, and what a crash costs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trainers.rows import QueuedGroups, scored_group
from trainers.checkpoints import Checkpoints
from trainers.grpo_config import GrpoConfig, LoraConfig
from trainers.grpo_run import GrpoRun, train
from trainers.run_files import held
from trainers.shuffled_rewards import ShuffledRewards
from trajectories.errors import ConfigError

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


class Engine:
    """Remembers which weights it was given under which version."""

    def __init__(self):
        self.versions: dict[str, dict] = {}

    async def __call__(self, policy, version):
        assert version not in self.versions, "a version names one set of weights for ever"
        self.versions[version] = {name: value.clone() for name, value in policy.weights().items()}


@pytest.fixture
def config(tiny_folder, tmp_path):
    return GrpoConfig(
        model=tiny_folder, output_dir=tmp_path / "run", steps=3, groups_per_step=2, learning_rate=0.01
    )


def groups(count: int, start: int = 0):
    return [scored_group(f"g{index}", [1.0, 0.0, 0.0]) for index in range(start, start + count)]


def metrics(config) -> list[dict]:
    return [json.loads(line) for line in (config.output_dir / "metrics.jsonl").read_text().splitlines()]


async def test_each_step_trains_a_batch_and_hands_new_weights_over_under_a_new_version(config):
    source, engine = QueuedGroups(groups(6)), Engine()

    learner = await train(config, source, engine)

    assert learner.step == 3
    assert list(engine.versions) == ["0", "1", "2", "3"]
    assert source.published == [(v, updating) for v in range(4) for updating in (True, False)]
    assert source.acked == [f"g{index}" for index in range(6)]
    first, last = engine.versions["0"], engine.versions["3"]
    assert any(not torch.equal(first[name], last[name]) for name in first)
    steps = metrics(config)
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["policy_version"] for step in steps] == [0, 1, 2]
    assert [step["staleness_max"] for step in steps] == [0, 1, 2]
    assert all(step["reward"] == pytest.approx(1 / 3) and step["rollouts"] == 6 for step in steps)


async def test_stale_groups_are_left_out_and_counted(config):
    fresh = [scored_group(f"fresh{index}", [1.0, 0.0], version="2") for index in range(2)]
    source = QueuedGroups([*groups(4), groups(1, 4)[0], *fresh])

    await train(config.model_copy(update={"max_staleness": 1}), source, Engine())

    assert [step["stale_groups"] for step in metrics(config)] == [0, 0, 1]
    assert source.acked[-1] == "fresh1", "stale groups are acknowledged as well, or they would come again"
    assert "g4" in source.acked


async def test_groups_whose_engine_names_no_version_count_as_fresh_and_are_counted(config):
    unversioned = [scored_group(f"u{index}", [1.0, 0.0], version=None) for index in range(3)]
    foreign = [scored_group(f"f{index}", [1.0, 0.0], version="default") for index in range(3)]
    await train(config.model_copy(update={"max_staleness": 0}), QueuedGroups(unversioned + foreign), Engine())
    assert [step["unversioned_groups"] for step in metrics(config)] == [2, 2, 2]


@pytest.mark.parametrize(("mode", "trained", "taken"), [("drop", 1, 2), ("resample", 2, 3), ("keep", 2, 2)])
async def test_groups_of_equal_rewards(config, mode, trained, taken):
    equal = scored_group("equal", [1.0, 1.0])
    source = QueuedGroups([equal, *groups(2)])
    options = {"zero_variance": mode, "steps": 1}

    await train(config.model_copy(update=options), source, Engine())

    (step,) = metrics(config)
    assert (step["groups"], step["zero_variance_groups"]) == (trained, 1)
    assert len(source.acked) == taken
    assert step["rollouts"] == 2 + 3 * (taken - 1), "the mean reward is of all fresh groups"


async def test_a_step_without_anything_to_learn_changes_no_weights_and_goes_on(config):
    equal = [scored_group(f"equal{index}", [0.0, 0.0]) for index in range(2)]
    engine = Engine()

    await train(config.model_copy(update={"steps": 2}), QueuedGroups([*equal, *groups(2)]), engine)

    assert list(engine.versions) == ["0", "1"]
    assert [step["groups"] for step in metrics(config)] == [0, 2]


async def test_the_divergence_from_the_first_policy_holds_the_policy_back(config):
    free, held = Engine(), Engine()
    await train(config, QueuedGroups(groups(6)), free)
    tied = {"kl_weight": 50.0, "output_dir": config.output_dir / "tied"}
    await train(config.model_copy(update=tied), QueuedGroups(groups(6)), held)

    def distance(engine):
        first, last = engine.versions["0"], engine.versions["3"]
        return sum(float((first[name] - last[name]).norm()) for name in first)

    assert [step["kl"] for step in metrics(config)] == [0, 0, 0]
    assert [step["kl"] > 0 for step in metrics(config.model_copy(update=tied))] == [False, True, True]
    assert distance(held) < distance(free)


async def test_shuffled_rewards_keep_the_rewards_and_their_groups():
    made = [scored_group(f"g{index}", [1.0, 0.0, 0.0, 0.5]) for index in range(8)]
    shuffled = await ShuffledRewards(QueuedGroups(made), seed=0).lease(8)
    again = await ShuffledRewards(QueuedGroups(made), seed=0).lease(8)

    assert shuffled == again
    assert [sorted(r.reward for r in g.rollouts) for g in shuffled.groups] == [[0.0, 0.0, 0.5, 1.0]] * 8
    assert [r.trajectory_id for g in shuffled.groups for r in g.rollouts] == [
        r.trajectory_id for g in made for r in g.rollouts
    ]
    assert [[r.reward for r in g.rollouts] for g in shuffled.groups] != [[1.0, 0.0, 0.0, 0.5]] * 8


async def test_a_resumed_run_ends_with_the_weights_of_one_that_was_never_interrupted(config):
    whole = await train(config, QueuedGroups(groups(6)), Engine())

    again = config.model_copy(update={"output_dir": config.output_dir / "again"})
    source = QueuedGroups(groups(6))
    interrupted = GrpoRun(again, source, Engine())
    await interrupted.publish()
    await interrupted.take_step()
    await interrupted.take_step()
    engine = Engine()
    resumed = await train(again, source, engine)

    assert resumed.step == 3
    assert list(engine.versions) == ["3", "4"], "no version is given out twice"
    for name, weight in whole.policy.weights().items():
        assert torch.equal(weight, resumed.policy.weights()[name])
    assert [step["step"] for step in metrics(again)] == [1, 2, 3]


async def test_a_run_that_is_trained_by_another_process_is_left_alone(config):
    with held(config.output_dir), pytest.raises(ConfigError, match="another process trains"):
        await train(config, QueuedGroups(groups(2)), Engine())
    await train(config.model_copy(update={"steps": 1}), QueuedGroups(groups(2)), Engine())


async def test_a_run_goes_on_with_the_weights_it_was_begun_with(config):
    await train(config.model_copy(update={"steps": 1}), QueuedGroups(groups(2)), Engine())
    with pytest.raises(ConfigError, match=r"lora: .* use another output_dir"):
        await train(config.model_copy(update={"lora": LoraConfig()}), QueuedGroups(groups(2)), Engine())


async def test_groups_are_acknowledged_once_a_checkpoint_holds_what_they_taught(config):
    source = QueuedGroups(groups(8))
    seldom = config.model_copy(update={"checkpoint_every": 2, "steps": 4, "max_staleness": None})
    run = GrpoRun(seldom, source, Engine())
    await run.publish()
    await run.take_step()
    assert source.acked == []
    await run.take_step()
    assert source.acked == ["g0", "g1", "g2", "g3"]
    await run.take_step()

    source.restart()  # the third step is undone, its groups come again
    await train(seldom, source, Engine())
    assert source.acked == [f"g{index}" for index in range(8)]
    assert [step["repeated_groups"] for step in metrics(seldom)] == [0, 0, 0, 0]


async def test_groups_that_a_checkpoint_holds_are_not_trained_again_when_their_acknowledgement_was_lost(
    config,
):
    class Deaf(QueuedGroups):
        async def ack(self, lease):
            raise ConnectionError("the trainer died here")

    source = Deaf(groups(8))
    run = GrpoRun(config, source, Engine())
    await run.publish()
    with pytest.raises(ConnectionError):
        await run.take_step()

    back = QueuedGroups([])
    back.waiting = [group for lease in source.leased for group in lease.groups] + source.waiting
    learner = await train(config, back, Engine())

    assert learner.step == 3
    assert metrics(config)[0]["repeated_groups"] == 2
    assert [step["step"] for step in metrics(config)] == [2, 3], "the first step's line was never written"
    assert back.acked == [f"g{index}" for index in range(6)]


SAVER = """
import sys
from pathlib import Path
from trainers.checkpoints import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
step = int(checkpoints.latest().name.removeprefix("step-")) if checkpoints.latest() else 0
while True:
    step += 1

    def write(path):
        for name in "abc":
            (path / name).write_text(str(step) * 50_000)

    checkpoints.save(step, write)
    print(step, flush=True)
"""


def test_whenever_the_process_is_killed_the_newest_checkpoint_is_whole(tmp_path):
    """Killed at some moment of an endless series of checkpoints, twelve times."""
    newest = 0
    for round_ in range(12):
        command = [sys.executable, "-c", SAVER, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as saver:
            assert saver.stdout and int(saver.stdout.readline()) > newest
            time.sleep(0.013 * round_)
            saver.kill()

        checkpoints = Checkpoints(tmp_path, keep=2)
        for path in checkpoints.all():
            step = int(path.name.removeprefix("step-"))
            assert [(path / name).read_text() for name in "abc"] == [str(step) * 50_000] * 3
        latest = checkpoints.latest()
        assert latest is not None
        reached = int(latest.name.removeprefix("step-"))
        assert reached > newest, "a kill loses no checkpoint that was made"
        newest = reached


def test_nothing_is_left_of_unfinished_checkpoints_and_only_the_newest_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(1, 5):
        checkpoints.save(step, lambda path: (path / "file").write_text("x"))
    (tmp_path / "step-00000009.partial").mkdir()
    assert [path.name for path in Checkpoints(tmp_path, keep=2).all()] == ["step-00000003", "step-00000004"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
