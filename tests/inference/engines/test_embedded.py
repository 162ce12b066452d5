"""The embedded engine against transformers' own forward pass, on a tiny random model."""

import asyncio
import random
import sys
from contextlib import asynccontextmanager

import pytest

from inference.embedded import EmbeddedEngine
from inference.packed_model import PackedModel
from tests.inference.engines.tiny_model import CONTEXT, VOCABULARY, save_tiny_model
from trajectories.errors import ConfigError, ContextOverflow, ModelError
from trajectories.turn import PolicySpan, SamplingParams

torch = pytest.importorskip("torch", reason="needs the torch extra")
GREEDY = SamplingParams(max_tokens=12, temperature=0)


@asynccontextmanager
async def started(folder, **options):
    engine = EmbeddedEngine(folder, **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(2, VOCABULARY) for _ in range(length)]


def reference_logits(folder, ids: list[int]):
    """Logits after each id, from one plain forward pass."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def assert_raw_logprobs(folder, prompt_ids, generation):
    logprobs = reference_logits(folder, prompt_ids + generation.output_ids).log_softmax(-1)
    rows = range(len(prompt_ids) - 1, len(prompt_ids) + len(generation.output_ids) - 1)
    expected = [float(logprobs[row, token]) for row, token in zip(rows, generation.output_ids, strict=True)]
    assert generation.output_logprobs == pytest.approx(expected, abs=1e-4)


async def test_requests_batched_together_get_what_a_plain_forward_pass_gives_each_alone(tiny_folder):
    prompts = [prompt(seed, length) for seed, length in enumerate([1, 3, 40, 17, 90, 5])]

    async with started(tiny_folder) as engine:
        answers = await asyncio.gather(
            *(engine.generate(ids, GREEDY, session_id=str(index)) for index, ids in enumerate(prompts))
        )

    for ids, answer in zip(prompts, answers, strict=True):
        logits = reference_logits(tiny_folder, ids + answer.output_ids)[len(ids) - 1 : -1]
        assert answer.output_ids == logits.argmax(-1).tolist()
        assert answer.finish_reason == "length"
        assert_raw_logprobs(tiny_folder, ids, answer)


@pytest.mark.parametrize("options", [{"temperature": 0.6}, {"top_p": 0.5}, {"top_k": 4}])
async def test_logprobs_are_those_of_the_model_whatever_the_sampling_parameters(tiny_folder, options):
    async with started(tiny_folder) as engine:
        answer = await engine.generate(prompt(1, 20), SamplingParams(seed=3, **options), session_id="a")

    assert len(set(answer.output_ids)) > 1
    assert engine.logprobs_kind == "raw"
    assert_raw_logprobs(tiny_folder, prompt(1, 20), answer)


async def test_a_seed_gives_the_same_ids_alone_and_in_a_crowd(tiny_folder):
    seeded = SamplingParams(max_tokens=20, seed=11)

    async with started(tiny_folder) as engine:
        alone = await engine.generate(prompt(0, 30), seeded, session_id="a")
        crowd = [engine.generate(prompt(seed, 10), SamplingParams(), session_id="b") for seed in range(6)]
        together, *_ = await asyncio.gather(engine.generate(prompt(0, 30), seeded, session_id="c"), *crowd)
        other = await engine.generate(prompt(0, 30), SamplingParams(max_tokens=20, seed=12), session_id="d")

    assert together.output_ids == alone.output_ids
    assert other.output_ids != alone.output_ids


async def test_a_later_turn_that_reuses_its_history_gets_what_a_fresh_engine_gives(tiny_folder):
    computed: list[int] = []

    async with started(tiny_folder) as engine:
        first = await engine.generate(prompt(0, 100), GREEDY, session_id="a")
        turn_two = prompt(0, 100) + first.output_ids + prompt(5, 8)
        count_computed_ids(engine, computed)
        reused = await engine.generate(turn_two, GREEDY, session_id="a")
    async with started(tiny_folder) as engine:
        fresh = await engine.generate(turn_two, GREEDY, session_id="a")

    assert computed[0] == 9, "the eight new ids, and the last sampled one, which no pass has seen yet"
    assert reused.output_ids == fresh.output_ids
    assert reused.output_logprobs == pytest.approx(fresh.output_logprobs, abs=1e-4)


async def test_siblings_that_start_together_compute_their_shared_prompt_once(tiny_folder):
    computed: list[int] = []
    shared = prompt(0, 150)

    async with started(tiny_folder) as engine:
        count_computed_ids(engine, computed)
        await asyncio.gather(
            *(engine.generate([*shared, index], GREEDY, session_id=str(index)) for index in range(8))
        )

    assert sum(computed) < len(shared) + 8 * (1 + GREEDY.max_tokens) + 8


def count_computed_ids(engine, computed: list[int]) -> None:
    model, _ = engine._loaded
    forward = model.forward

    def counting(pieces):
        computed.append(sum(len(piece.ids) for piece in pieces))
        return forward(pieces)

    model.forward = counting


async def test_prompts_longer_than_one_pass_are_computed_piece_by_piece(tiny_folder, monkeypatch):
    monkeypatch.setattr("inference.embedded_scheduler.PIECE_TOKENS", 16)

    async with started(tiny_folder) as engine:
        answers = await asyncio.gather(
            *(engine.generate(prompt(seed, 100), GREEDY, session_id=str(seed)) for seed in range(3))
        )

    for seed, answer in enumerate(answers):
        assert_raw_logprobs(tiny_folder, prompt(seed, 100), answer)


async def test_a_stop_id_ends_the_output_and_is_its_last_id(tiny_folder):
    async with started(tiny_folder) as engine:
        free = await engine.generate(prompt(2, 10), GREEDY, session_id="a")
        stop_id = free.output_ids[4]
        stopped = await engine.generate(prompt(2, 10), GREEDY, session_id="a", stop_ids=[stop_id])

    end = free.output_ids.index(stop_id) + 1
    assert stopped.output_ids == free.output_ids[:end]
    assert stopped.finish_reason == "stop"


async def test_the_context_bounds_prompt_and_output_together(tiny_folder):
    async with started(tiny_folder) as engine:
        answer = await engine.generate(prompt(0, CONTEXT - 3), GREEDY, session_id="a")
        with pytest.raises(ContextOverflow, match="256"):
            await engine.generate(prompt(0, CONTEXT), GREEDY, session_id="a")

    assert len(answer.output_ids) == 3
    assert answer.finish_reason == "length"


async def test_a_cancelled_request_gives_its_place_to_the_next(tiny_folder):
    endless = SamplingParams(max_tokens=CONTEXT)

    async with started(tiny_folder, max_batch=1) as engine:
        first = asyncio.create_task(engine.generate(prompt(0, 4), endless, session_id="a"))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(engine.generate(prompt(1, 4), endless, session_id="b"))
        await asyncio.sleep(0)
        first.cancel()
        waiting.cancel()
        answer = await engine.generate(prompt(2, 4), GREEDY, session_id="c")
        _, scheduler = engine._loaded
        assert not scheduler._running

    assert len(answer.output_ids) == GREEDY.max_tokens
    assert first.cancelled()


async def test_score_returns_the_logprobs_that_sampling_reported(tiny_folder, monkeypatch):
    monkeypatch.setattr("inference.embedded.PIECE_TOKENS", 7)

    async with started(tiny_folder) as engine:
        answer = await engine.generate(prompt(0, 20), SamplingParams(max_tokens=9, seed=1), session_id="a")
        scores = await engine.score(prompt(0, 20) + answer.output_ids)
        single = await engine.score([5])

    assert len(scores) == 29
    assert scores[0] is None
    assert scores[20:] == pytest.approx(answer.output_logprobs, abs=1e-4)
    assert single == [None]


async def test_new_weights_sample_every_later_id_and_are_named_in_it(tiny_folder, tmp_path):
    other = save_tiny_model(tmp_path / "other", seed=1)

    async with started(tiny_folder) as engine:
        running = asyncio.create_task(engine.generate(prompt(0, 60), GREEDY, session_id="a"))
        while not (running.done() or engine._loaded[1]._running):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await engine.update_weights(other, "7")
        before = await running
        after = await engine.generate(prompt(0, 60), GREEDY, session_id="a")

    assert before.policy_versions == [PolicySpan("0", 0, 12)]
    assert after.policy_versions == [PolicySpan("7", 0, 12)]
    assert_raw_logprobs(tiny_folder, prompt(0, 60), before)
    assert_raw_logprobs(other, prompt(0, 60), after)


async def test_weights_of_another_shape_are_refused_and_the_old_ones_go_on(tiny_folder):
    async with started(tiny_folder) as engine:
        with pytest.raises(ConfigError, match="do not fit"):
            await engine.update_weights({"model.norm.weight": torch.zeros(5)}, "1")
        answer = await engine.generate(prompt(0, 10), GREEDY, session_id="a")

    assert answer.policy_versions[0].version == "0"


async def test_weights_that_give_no_number_are_a_model_error(tiny_folder):
    async with started(tiny_folder) as engine:
        model, _ = engine._loaded
        broken = {
            name: torch.full_like(value, torch.nan) for name, value in model._model.state_dict().items()
        }
        await engine.update_weights(broken, "broken")
        with pytest.raises(ModelError, match="nan"):
            await engine.generate(prompt(0, 10), SamplingParams(max_tokens=4), session_id="a")


async def test_a_failing_pass_fails_its_requests_and_no_later_one(tiny_folder, monkeypatch):
    async with started(tiny_folder) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(PackedModel, "forward", lambda self, pieces: 1 / 0)
            with pytest.raises(ModelError, match="ZeroDivisionError"):
                await engine.generate(prompt(0, 10), GREEDY, session_id="a")
            with pytest.raises(ModelError, match="ZeroDivisionError"):
                await engine.score([1, 2, 3])
        answer = await engine.generate(prompt(0, 10), GREEDY, session_id="a")

    assert_raw_logprobs(tiny_folder, prompt(0, 10), answer)


async def test_closing_fails_what_is_unfinished_and_is_idempotent(tiny_folder):
    engine = EmbeddedEngine(tiny_folder)
    await engine.start()
    await engine.start()
    task = asyncio.create_task(
        engine.generate(prompt(0, 4), SamplingParams(max_tokens=CONTEXT), session_id="a")
    )
    await asyncio.sleep(0)

    await engine.close()
    await engine.close()

    with pytest.raises(ModelError, match="closed"):
        await task


async def test_a_folder_that_holds_no_model_is_a_config_error_that_names_the_fix(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json; scripts/fetch_model\.py"):
        await EmbeddedEngine(tmp_path).start()


async def test_missing_torch_is_a_config_error_that_names_the_extra(tiny_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(ConfigError, match=r"lachesis-rl\[torch\]"):
        await EmbeddedEngine(tiny_folder).start()


@pytest.mark.model
async def test_the_real_model_answers_knows_its_name_and_stops_at_a_stop_string(model_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    ids = tokenizer.encode("The capital of France is Paris. The capital of Italy is")

    async with started(model_folder) as engine:
        answer = await engine.generate(ids, SamplingParams(max_tokens=3, temperature=0), session_id="a")
        stopped = await engine.generate(
            ids, SamplingParams(max_tokens=20, temperature=0, stop=("Rome",)), session_id="a"
        )
        name = engine.model

    assert "Rome" in tokenizer.decode(answer.output_ids)
    assert tokenizer.decode(stopped.output_ids).endswith("Rome")
    assert stopped.finish_reason == "stop"
    assert name.startswith("SmolLM2-135M-Instruct@")
