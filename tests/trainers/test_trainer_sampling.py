"""A trainer's sampling parameters: taken over, left as the environment has them, or refused by name."""

import pytest

from environments.config import SamplingConfig
from trainers.trainer_sampling import trainer_sampling
from trajectories.errors import ConfigError

USUAL = SamplingConfig(max_tokens=64, temperature=0.7, top_p=0.9, top_k=20)


def test_what_the_trainer_says_is_taken_and_the_rest_is_as_the_environment_is_set():
    assert trainer_sampling({}, USUAL) == USUAL
    nothing = dict.fromkeys(("max_tokens", "max_new_tokens", "temperature", "top_p", "top_k"))
    assert trainer_sampling(nothing, USUAL) == USUAL
    said = {"max_new_tokens": 32, "temperature": 0.0, "top_p": 1.0, "top_k": -1}
    assert trainer_sampling(said, USUAL) == SamplingConfig(max_tokens=32, temperature=0.0)
    assert trainer_sampling({"max_tokens": 128}, USUAL).max_tokens == 64


def test_what_slime_and_skyrl_always_send_is_taken():
    slime = {"stop": None, "stop_token_ids": None, "skip_special_tokens": True, "no_stop_trim": True}
    skyrl = {"stop": None, "min_tokens": 1, "min_p": 0.0, "logprobs": 1}
    assert trainer_sampling(slime, USUAL) == trainer_sampling(skyrl, USUAL) == USUAL


@pytest.mark.parametrize(
    "unknown",
    [
        {"min_p": 0.1},
        {"stop": ["\n"]},
        {"stop_token_ids": [3]},
        {"ignore_eos": True},
        {"logit_bias": {3: -100.0}},
        {"min_tokens": 2},
        {"min_new_tokens": 2},
        {"top_p": 0.0},
        {"temperature": -1.0},
    ],
    ids=str,
)
def test_what_environments_do_not_offer_and_what_can_not_be_is_refused(unknown):
    with pytest.raises(ConfigError, match=next(iter(unknown))):
        trainer_sampling(unknown, USUAL)
