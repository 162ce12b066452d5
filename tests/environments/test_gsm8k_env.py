"""Word problems: right answers score 1, whatever surrounds the number."""

import re
from decimal import Decimal

import pytest

from environments.agent_loop import Transcript
from environments.gsm8k_env import GSM8KEnv, GSM8KEnvConfig, final_number
from environments.gsm8k_problems import generate_problems
from environments.items import item_key
from trajectories.messages import Message
from trajectories.turn import SamplingParams, Turn


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 42", 42),
        ("6 * 7 = 42\n#### 42\n", 42),
        ("#### $1,234.50 in all", Decimal("1234.5")),
        ("#### -3", -3),
        ("#### 7 (not 8)", 7),
        ("first 3, then 5", 5),
        ("#### none", None),
        ("no number", None),
        ("", None),
    ],
)
def test_the_final_number_is_found(text, number):
    assert final_number(text) == number


async def test_the_answer_is_judged_by_its_number_alone():
    env = GSM8KEnv(GSM8KEnvConfig())
    item = {"question": "6 times 7?", "answer": "6 * 7 = 42\n#### 42"}
    for text, expected in [
        ("so\n#### 42.0", 1.0),
        ("#### 41", 0.0),
        ("42 is wrong, it is 43", 0.0),
        ("", 0.0),
    ]:
        message = Message.assistant(text)
        result = Transcript([message], [Turn(message, "stop", SamplingParams())])
        assert await env.compute_reward(item, result, None) == expected, text


def test_generated_problems_have_the_answer_their_computation_gives():
    for item in generate_problems(3, 200):
        steps, answer = re.fullmatch(r"(.*) = (\d+)\n#### \2", item["answer"]).groups()
        assert eval(steps) == int(answer)


async def test_training_and_evaluation_problems_differ():
    env = GSM8KEnv(GSM8KEnvConfig(generated_items=200))
    await env.setup()
    keys = [item_key(item) for item in env.items + env.eval_items]
    assert len(set(keys)) == len(keys) == 250
