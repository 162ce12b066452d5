"""The audit passes what sessions record and finds whatever was done to it since."""

import math
from dataclasses import replace

import pytest

from inference.audit import audit
from inference.scripted_engine import ScriptedEngine
from tests.builders import trajectory_of
from tests.inference.sessions.driving import ASK, CALL, SAMPLING, client_of, result
from tests.inference.sessions.strategies import TOOL
from trajectories.errors import ModelError
from trajectories.messages import Message

THOUGHT = f"<think>\nhm\n</think>\n\n{CALL}<|im_end|>"


async def rollout(history="append"):
    client = await client_of(
        THOUGHT, "a b<|im_end|>", "Done<|im_end|>", family="qwen3", history=history, engine={}
    )
    async with client.session("t", ASK, [TOOL]) as session:
        turns = [
            (await session.extend(new, SAMPLING)).turn for new in ([], [result()], [Message.user("more")])
        ]
    return replace(trajectory_of([turn.message for turn in turns], tools=[TOOL]), turns=turns)


async def audited(trajectory, engine=None):
    return await audit([trajectory], engine or ScriptedEngine([]), max_delta=1e-9)


def with_turn(trajectory, index, **changes):
    turns = list(trajectory.turns)
    turns[index] = replace(turns[index], **changes)
    return replace(trajectory, turns=turns)


async def test_what_a_session_recorded_passes():
    report = await audited(await rollout())
    assert report.violations == []
    assert report.max_delta == 0
    assert report.compared == report.sampled == report.trained > 0
    assert report.rows == {"start": 1}


async def test_rows_are_counted_by_cause():
    report = await audited(await rollout("template"))
    assert report.violations == []
    assert report.rows == {"start": 1, "template": 1}


async def test_a_shifted_logprob_is_found_and_named():
    trajectory = await rollout()
    logprobs = list(trajectory.turns[1].output_logprobs)
    logprobs[0] -= 0.5
    report = await audited(with_turn(trajectory, 1, output_logprobs=logprobs))
    assert math.isclose(report.max_delta, 0.5)
    assert "turn 1: recorded" in report.violations[0]
    assert "turn 1" in report.worst


async def test_an_output_that_was_encoded_again_is_found():
    trajectory = await rollout()
    report = await audited(with_turn(trajectory, 1, output_ids=trajectory.turns[1].output_ids[::-1]))
    start = len(trajectory.turns[1].prompt_ids)
    assert report.violations[-1] == (
        f"run/item/0: turn 2 breaks row 0 at position {start} and says no cause: "
        "an output of turn 1 was encoded again or edited"
    )
    assert any("recomputed" in violation for violation in report.violations)


@pytest.mark.parametrize("answers", ["wrong right", "wrong wrong"])
async def test_a_roll_back_passes_if_it_says_so(answers):
    client = await client_of("a<|im_end|>", "b<|im_end|>", "c<|im_end|>")
    async with client.session("t", ASK, []) as session:
        turns = [(await session.extend([], SAMPLING)).turn]
        for branch, answer in zip((session.fork(), session), answers.split(), strict=True):
            turns.append((await branch.extend([Message.user(answer)], SAMPLING)).turn)
    trajectory = replace(trajectory_of([turn.message for turn in turns]), turns=turns)
    assert [*(await audited(trajectory)).violations] == [
        f"run/item/0: turn 2 breaks row 0 at position {parting(turns)} and says no cause: "
        "history was edited or rolled back"
    ]
    report = await audited(with_turn(trajectory, 2, row_cause="history_edit"))
    assert report.violations == []
    assert report.rows == {"start": 1, "history_edit": 1}
    assert report.trained == report.sampled


def parting(turns):
    pairs = zip(turns[1].prompt_ids, turns[2].prompt_ids, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(turns[1].prompt_ids))


async def test_text_without_ids_is_counted():
    report = await audited(trajectory_of([Message.assistant("x")]))
    assert (report.violations, report.compared, report.text_only) == ([], 0, 1)
    assert "trajectories      1, text only 1" in str(report)


async def test_a_missing_logprob_is_found():
    report = await audited(with_turn(await rollout(), 0, output_logprobs=None))
    assert "no logprob was recorded" in report.violations[0]


async def test_arrays_of_different_length_are_found():
    trajectory = await rollout()
    report = await audited(with_turn(trajectory, 0, output_logprobs=[-1.0]))
    assert any("1 logprobs" in violation for violation in report.violations)
    assert any("0 are trained" in violation for violation in report.violations)


async def test_another_model_is_found():
    report = await audited(replace(await rollout(), model="other"))
    assert "sampled by other, scored by scripted" in report.violations[0]


async def test_processed_logprobs_below_temperature_1_cannot_be_compared():
    trajectory = await rollout()
    for index in range(3):
        trajectory = with_turn(
            trajectory,
            index,
            logprobs_kind="processed",
            sampling=replace(SAMPLING, temperature=0.5),
            output_logprobs=[-9.0] * len(trajectory.turns[index].output_ids),
        )
    report = await audited(trajectory)
    assert report.violations == []
    assert (report.compared, report.skipped) == (0, report.sampled)
    assert report.mean_delta == 0


async def test_a_last_token_without_a_score_is_not_comparable():
    class Full(ScriptedEngine):
        async def score(self, token_ids):
            return [*(await super().score(token_ids))[:-1], None]

    report = await audited(await rollout(), Full([]))
    assert report.violations == []
    assert (report.skipped, report.compared) == (1, report.sampled - 1)


async def test_an_engine_that_cannot_score_is_a_failure_of_the_engine():
    class Mute(ScriptedEngine):
        async def score(self, token_ids):
            raise ModelError("no prompt logprobs")

    with pytest.raises(ModelError, match="no prompt logprobs"):
        await audited(await rollout(), Mute([]))


async def test_the_report_reads_as_a_list():
    trajectory = await rollout("template")
    text = str(await audited(with_turn(trajectory, 0, output_logprobs=None)))
    assert "rows              2 (1 by start, 1 by template)" in text
    assert "violations        1\n  run/item/0: row 0" in text
