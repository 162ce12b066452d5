"""The real vLLM: our engines over it, and the embedded engine beside it, on the same weights in float32."""

import asyncio
from contextlib import asynccontextmanager
from urllib.request import urlopen

import pytest

from inference.detect import connect
from inference.embedded import EmbeddedEngine
from inference.http_engine import HttpEngine
from inference.vllm import VllmCompletions, VllmGenerate
from tests.real_parts import ON_VLLM
from trajectories.errors import ContextOverflow, ModelError
from trajectories.turn import SamplingParams

pytestmark = [*ON_VLLM, pytest.mark.model]

VOCABULARY = 49152
END_OF_TURN = 2

NUMERIC_NOISE = 1e-3
"""Bound of |Δ logprob| between two float32 implementations; the largest seen over 1,036 ids was 5e-5."""

TEXTS = [
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nCount from 1 to 10.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a haiku about bash.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    ",
    '<tool_call>\n{"name": "terminal", "arguments": {"command": "mkdir',
]

ENDLESS = [537, 827, 1296, 582, 827, 1296, 582, 827, 1296, 582, 827, 1296]
"""One two three …, which greedy sampling goes on with until it is stopped."""


@pytest.fixture(scope="module")
def prompts(model_folder) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    return [tokenizer.encode(text) for text in TEXTS]


@asynccontextmanager
async def started(engine):
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def over(url: str, wire, **options) -> HttpEngine:
    return HttpEngine(
        url, wire, model="SmolLM2-135M-Instruct", vocab_size=VOCABULARY, context_length=4096, **options
    )


async def generate_all(engine, prompts, sampling):
    return await asyncio.gather(
        *(
            engine.generate(ids, sampling, session_id=str(index), stop_ids=[END_OF_TURN])
            for index, ids in enumerate(prompts)
        )
    )


async def test_its_token_endpoint_its_model_and_its_context_are_found_out(vllm_url):
    engine = await connect(vllm_url, vocab_size=VOCABULARY)

    assert isinstance(engine.wire, VllmGenerate)
    assert engine.model == "SmolLM2-135M-Instruct"
    assert engine.context_length == 4096


async def test_embedded_engine_and_vllm_give_the_same_tokens_at_temperature_0(
    vllm_url, model_folder, prompts
):
    greedy = SamplingParams(max_tokens=32, temperature=0)

    async with (
        started(EmbeddedEngine(model_folder)) as embedded,
        started(over(vllm_url, VllmGenerate())) as vllm,
    ):
        ours = await generate_all(embedded, prompts, greedy)
        theirs = await generate_all(vllm, prompts, greedy)
        for ids, our, their in zip(prompts, ours, theirs, strict=True):
            equal = await equal_up_to_a_tie(embedded, ids, our.output_ids, their.output_ids)
            assert our.output_logprobs[:equal] == pytest.approx(
                their.output_logprobs[:equal], abs=NUMERIC_NOISE
            )

    assert sum(our.output_ids == their.output_ids for our, their in zip(ours, theirs, strict=True)) >= 3


async def equal_up_to_a_tie(engine, prompt_ids, left, right) -> int:
    """How many ids are equal; where they part, both choices must be equally likely up to noise."""
    if left == right:
        return len(left)
    parting = next(i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    before = prompt_ids + left[:parting]
    choices = [(await engine.score([*before, ids[parting]]))[-1] for ids in (left, right)]
    assert choices[0] == pytest.approx(choices[1], abs=NUMERIC_NOISE)
    return parting


@pytest.mark.parametrize("wire", [VllmGenerate, VllmCompletions])
async def test_sampled_logprobs_are_raw_and_both_engines_score_them_alike(
    vllm_url, model_folder, prompts, wire
):
    warm = SamplingParams(max_tokens=32, temperature=0.7, top_p=0.9, top_k=40, seed=5)

    async with started(EmbeddedEngine(model_folder)) as embedded, started(over(vllm_url, wire())) as vllm:
        answers = await generate_all(vllm, prompts[:3], warm)
        again = await generate_all(vllm, prompts[:1], warm)
        for ids, answer in zip(prompts, answers, strict=False):
            whole = ids + answer.output_ids
            theirs, ours = await asyncio.gather(vllm.score(whole), embedded.score(whole))
            assert theirs[0] is ours[0] is None
            assert theirs[1:] == pytest.approx(ours[1:], abs=NUMERIC_NOISE)
            assert answer.output_logprobs == pytest.approx(ours[len(ids) :], abs=NUMERIC_NOISE)

    assert again[0].output_ids == answers[0].output_ids, "a seed repeats itself"


@pytest.mark.parametrize("wire", [VllmGenerate, VllmCompletions])
async def test_a_prompt_too_long_or_of_impossible_ids_is_told_apart(vllm_url, wire):
    engine = over(vllm_url, wire(), attempts=1)
    engine._context_length = 10_000
    async with started(engine) as vllm:
        with pytest.raises(ContextOverflow):
            await vllm.generate([5] * 5000, SamplingParams(max_tokens=1), session_id="a")
        with pytest.raises(ModelError, match="vocabulary") as failure:
            await vllm.generate([5, VOCABULARY + 7], SamplingParams(max_tokens=1), session_id="a")
    assert not failure.value.retryable


@pytest.mark.parametrize("wire", [VllmGenerate, VllmCompletions])
async def test_an_output_that_fills_the_context_is_scored_but_for_its_last_id(vllm_url, wire):
    prompt_ids = [100 + place % 500 for place in range(4093)]
    async with started(over(vllm_url, wire())) as vllm:
        answer = await vllm.generate(prompt_ids, SamplingParams(max_tokens=50), session_id="a")
        assert (len(answer.output_ids), answer.finish_reason) == (3, "length")
        scores = await vllm.score(prompt_ids + answer.output_ids)
    assert scores[-3:-1] == pytest.approx(answer.output_logprobs[:-1], abs=NUMERIC_NOISE)
    assert scores[-1] is None


@pytest.mark.parametrize("wire", [VllmGenerate, VllmCompletions])
async def test_cancelling_ends_the_request_on_the_server(vllm_url, wire):
    async with started(over(vllm_url, wire())) as vllm:
        call = vllm.generate(ENDLESS, SamplingParams(max_tokens=3000, temperature=0.0), session_id="a")
        task = asyncio.create_task(call)
        async with asyncio.timeout(60):
            await until_running(vllm_url, 1)
            task.cancel()
            await until_running(vllm_url, 0)
    assert task.cancelled()


async def until_running(url: str, count: int) -> None:
    """Wait until the server computes so many requests; without the abort it would take a minute longer."""
    while await asyncio.to_thread(running, url) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def running(url: str) -> int:
    with urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith("vllm:num_requests_running{")]
    return int(float(line.rpartition(" ")[2]))
