"""The proof that it learns, through the whole path, beside the control that must not."""

import pytest

from scripts.train_lookup import learn

STEPS = 40


@pytest.mark.timeout(900)
@pytest.mark.parametrize("control", [False, True], ids=["rewards", "shuffled rewards"])
async def test_a_policy_learns_to_use_its_tool_from_its_rewards_and_from_nothing_else(tmp_path, control):
    result = await learn(tmp_path, seed=0, control=control, steps=STEPS)

    assert 0.05 < result["before"] < 0.3
    if control:
        assert result["after"] < 0.3
    else:
        assert result["after"] > 0.85
    curve = result["curve"]
    assert [step["step"] for step in curve] == list(range(1, STEPS + 1))
    assert all(step["repeated_groups"] == 0 for step in curve)
    first = curve[0]
    assert first["staleness_max"] == 0
    assert first["logprob_delta"] < 1e-4, "what was sampled is what is recomputed"
