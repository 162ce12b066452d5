"""One conformance suite for every engine behind HTTP, against a server that breaks on request."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from inference.detect import connect
from inference.engine import Generation, checked
from inference.fake_dialects import DIALECTS
from inference.fake_server import FakeServer, Fault
from inference.http_engine import HttpEngine
from inference.scripted_engine import ScriptedEngine, scripted_logprob
from inference.sglang import SglangGenerate
from inference.vllm import VllmCompletions, VllmCustom, VllmGenerate
from trajectories.errors import ConfigError, ContextOverflow, ModelError
from trajectories.turn import PolicySpan, SamplingParams

VOCABULARY = 500
CONTEXT = 64
PROMPT = [5, 17, 99]
WIRES = {
    "vllm_generate": VllmGenerate,
    "vllm_completions": VllmCompletions,
    "vllm_custom": VllmCustom,
    "sglang": SglangGenerate,
    "sglang_wrapped": SglangGenerate,
}
CAN_SCORE = [dialect for dialect in WIRES if dialect != "vllm_custom"]

every_dialect = pytest.mark.parametrize("dialect", WIRES)


def test_every_dialect_of_the_fake_server_is_tested():
    assert set(WIRES) == set(DIALECTS)


def continuation(prompt_ids) -> list[int]:
    """Ids that depend on the whole prompt, so that a mangled one shows."""
    seed = sum((place + 1) * token_id for place, token_id in enumerate(prompt_ids))
    return [(seed * 31 + place * 7) % VOCABULARY for place in range(40)]


def fake(dialect: str, **options) -> FakeServer:
    engine = ScriptedEngine(
        continuation, vocab_size=VOCABULARY, context_length=CONTEXT, policy_version="step-3"
    )
    return FakeServer(engine, dialect, **options)


@asynccontextmanager
async def serving(dialect: str, **options):
    """A server of this kind and an engine that found out its kind."""
    async with fake(dialect) as server:
        engine = await connect(server.url, vocab_size=VOCABULARY, context_length=CONTEXT, **options)
        await engine.start()
        try:
            yield server, engine
        finally:
            await engine.close()


async def ask(engine: HttpEngine, **sampling):
    return await engine.generate(
        PROMPT, SamplingParams(**{"max_tokens": 6, **sampling}), session_id="a", stop_ids=[]
    )


@every_dialect
async def test_the_kind_of_server_is_found_out(dialect):
    async with serving(dialect) as (server, engine):
        assert type(engine.wire) is WIRES[dialect]
        assert engine.context_length == CONTEXT
        assert engine.logprobs_kind == ("processed" if "sglang" in dialect else "raw")
        assert not server.calls, "detection samples nothing"


async def test_sglang_is_known_by_the_later_name_of_its_route(monkeypatch):
    later = replace(DIALECTS["sglang"], probes=("/v1/models", "/model_info"))
    monkeypatch.setitem(DIALECTS, "sglang", later)
    async with serving("sglang") as (_, engine):
        assert type(engine.wire) is SglangGenerate


@every_dialect
async def test_ids_and_logprobs_arrive_as_the_server_sampled_them(dialect):
    async with serving(dialect) as (_, engine):
        generation = await ask(engine)

    expected = continuation(PROMPT)[:6]
    assert generation.output_ids == expected
    assert generation.output_logprobs == [
        scripted_logprob(len(PROMPT) + place, token_id) for place, token_id in enumerate(expected)
    ]
    assert generation.finish_reason == "length"
    if dialect in ("vllm_generate", "sglang", "sglang_wrapped"):
        assert generation.policy_versions == [PolicySpan("step-3", 0, 6)]
    else:
        assert generation.policy_versions == []


@every_dialect
async def test_a_stop_id_ends_the_output_and_is_kept(dialect):
    stop_id = continuation(PROMPT)[3]
    async with serving(dialect) as (_, engine):
        generation = await engine.generate(PROMPT, SamplingParams(), session_id="a", stop_ids=[stop_id])

    assert generation.output_ids == continuation(PROMPT)[:4]
    assert generation.finish_reason == "stop"


@every_dialect
async def test_every_sampling_parameter_is_spelled_out(dialect):
    sampling = SamplingParams(7, temperature=0.5, top_p=0.9, top_k=3, seed=11, stop=("END",))
    async with serving(dialect) as (server, engine):
        await engine.generate(PROMPT, sampling, session_id="a", stop_ids=[2])

    sent = server.calls[0]
    sent = sent.get("sampling_params", sent)
    seed_name, length_name = (
        ("sampling_seed", "max_new_tokens") if "sglang" in dialect else ("seed", "max_tokens")
    )
    expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, seed_name: 11, length_name: 7}
    expected |= {"stop": ["END"], "stop_token_ids": [2], "n": 1}
    expected |= {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert {name: sent[name] for name in expected} == expected


@pytest.mark.parametrize("dialect", CAN_SCORE)
async def test_scores_are_the_logprobs_of_the_ids_themselves(dialect):
    ids = [5, 17, 99, 3]
    async with serving(dialect) as (_, engine):
        scores = await engine.score(ids)

    assert scores == [None, *(scripted_logprob(place, ids[place]) for place in (1, 2, 3))]


@pytest.mark.parametrize("dialect", CAN_SCORE)
async def test_ids_that_fill_the_context_are_scored_but_for_the_last(dialect):
    async with serving(dialect) as (_, engine):
        ids = [*range(1, CONTEXT + 1)]
        scores = await engine.score(ids)
        with pytest.raises(ContextOverflow):
            await engine.score([*ids, 1])

    assert scores == [None, *(scripted_logprob(place, ids[place]) for place in range(1, CONTEXT - 1)), None]


async def test_a_server_that_cannot_score_says_so():
    async with serving("vllm_custom") as (_, engine):
        with pytest.raises(ModelError, match="can't score") as failure:
            await engine.score([1, 2])
    assert not failure.value.retryable


@every_dialect
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.NULL_LOGPROB, "left out 1 of 6 logprobs"),
        (Fault.NAN_LOGPROB, "not an answer of"),
        (Fault.STAND_IN_LOGPROB, "logprob at 0 is -9999.0"),
        (Fault.POSITIVE_LOGPROB, "logprob at 0 is 1.0"),
        (Fault.IMPOSSIBLE_ID, "outside the vocabulary|not of the ids it names"),
        (Fault.TOO_MANY_IDS, "max_tokens is 6"),
        (Fault.NO_CHOICE, "0 choices|no logprobs"),
        (Fault.TWO_CHOICES, "2 choices"),
        (Fault.ABORTED, "finish_reason 'abort'"),
        (Fault.NOT_JSON, "not an answer of"),
        (Fault.TOO_DEEP, "not an answer of"),
        (Fault.HALF_AN_ANSWER, "hung up"),
        (Fault.BROKEN, "HTTP 500"),
        (Fault.BUSY, "HTTP 429"),
    ],
)
async def test_an_answer_not_to_be_trusted_is_a_model_error_with_the_reason(dialect, fault, reason):
    async with serving(dialect, attempts=1) as (server, engine):
        server.faults.append(fault)
        with pytest.raises(ModelError, match=reason) as failure:
            await ask(engine)
        assert failure.value.retryable
        assert (await ask(engine)).output_ids == continuation(PROMPT)[:6], "the next call is unharmed"


@pytest.mark.parametrize("dialect", ["vllm_generate", "vllm_completions"])
async def test_a_dropped_logprob_never_shifts_the_others(dialect):
    async with serving(dialect, attempts=1) as (server, engine):
        server.faults.append(Fault.DROPPED_LOGPROB)
        with pytest.raises(ModelError, match=r"6 (output )?ids but 5 logprobs"):
            await ask(engine)


@pytest.mark.parametrize("dialect", ["sglang", "sglang_wrapped"])
async def test_sglang_dropping_a_logprob_shows_against_its_ids(dialect):
    async with serving(dialect, attempts=1) as (server, engine):
        server.faults.append(Fault.DROPPED_LOGPROB)
        with pytest.raises(ModelError, match="6 ids but 5 logprobs"):
            await ask(engine)


@pytest.mark.parametrize("logprob", [float("nan"), float("inf"), float("-inf")])
def test_a_logprob_must_be_that_of_a_sampled_id(logprob):
    with pytest.raises(ModelError, match="logprob at 1"):
        checked(Generation([1, 2], [-0.5, logprob], "stop"), VOCABULARY, SamplingParams())


@pytest.mark.parametrize("ends", [[(0, 3)], [(-1, 2)], [(2, 1)], [(1, 2), (0, 1)], [(0, 2), (1, 2)]])
def test_policy_spans_lie_in_the_output_one_behind_the_other(ends):
    spans = [PolicySpan("7", *end) for end in ends]
    with pytest.raises(ModelError, match="policy span"):
        checked(Generation([1, 2], [-0.5, -0.5], "stop", spans), VOCABULARY, SamplingParams())


@every_dialect
async def test_a_refusal_is_final_and_not_worth_another_attempt(dialect):
    async with serving(dialect) as (server, engine):
        server.faults.append(Fault.REFUSED)
        with pytest.raises(ModelError, match="HTTP 400") as failure:
            await ask(engine)
        assert not failure.value.retryable
        assert len(server.calls) == 1


@every_dialect
async def test_a_prompt_too_long_is_a_context_overflow_whoever_notices(dialect):
    async with serving(dialect) as (server, engine):
        with pytest.raises(ContextOverflow, match="64"):
            await engine.generate([1] * CONTEXT, SamplingParams(), session_id="a")
        server.faults.append(Fault.TOO_LONG)
        with pytest.raises(ContextOverflow, match="maximum context length"):
            await ask(engine)


async def test_the_output_is_asked_for_within_the_room_left():
    async with serving("vllm_generate") as (server, engine):
        await engine.generate([1] * (CONTEXT - 2), SamplingParams(max_tokens=100), session_id="a")

        server.faults.append(Fault.TOO_MANY_IDS)
        with pytest.raises(ModelError, match="max_tokens is 2"):
            await engine.generate([1] * (CONTEXT - 2), SamplingParams(max_tokens=5000), session_id="a")

    assert server.calls[0]["sampling_params"]["max_tokens"] == 2


@every_dialect
async def test_cancelling_hangs_up_so_that_the_server_stops(dialect):
    async with serving(dialect) as (server, engine):
        server.faults.append(Fault.HANGS)
        task = asyncio.create_task(ask(engine))
        async with asyncio.timeout(30):
            while not server.calls:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            await server.abandoned.wait()
        assert task.cancelled()


async def test_a_deadline_hangs_up_and_is_a_model_error():
    async with serving("vllm_generate", timeout_s=0.2) as (server, engine):
        server.faults.append(Fault.HANGS)
        with pytest.raises(ModelError, match=r"no answer from /inference/v1/generate within 0\.2 s"):
            await ask(engine)
        async with asyncio.timeout(30):
            await server.abandoned.wait()


async def test_a_session_survives_the_death_of_its_server_id_for_id():
    async with fake("vllm_generate") as one, fake("vllm_generate") as two:
        engine = await connect([one.url, two.url], vocab_size=VOCABULARY)
        await engine.start()
        await ask(engine)
        first, other = (one, two) if one.calls else (two, one)
        await ask(engine)
        assert (len(first.calls), len(other.calls)) == (2, 0), "a session keeps to its server"

        await first.__aexit__()
        generation = await ask(engine)
        await engine.close()

    assert generation.output_ids == continuation(PROMPT)[:6]
    assert len(other.calls) == 1


async def test_sessions_spread_over_the_servers():
    async with fake("sglang") as one, fake("sglang") as two:
        engine = await connect([one.url, two.url], vocab_size=VOCABULARY)
        await engine.start()
        sampling = SamplingParams(max_tokens=2)
        for index in range(40):
            await engine.generate(PROMPT, sampling, session_id=f"session-{index}")
        await engine.close()

    assert len(one.calls) + len(two.calls) == 40
    assert min(len(one.calls), len(two.calls)) >= 8


async def test_servers_of_different_kinds_are_refused():
    async with fake("vllm_generate") as one, fake("vllm_completions") as two:
        with pytest.raises(ConfigError, match="one kind"):
            await connect([one.url, two.url], vocab_size=VOCABULARY)


async def test_a_model_the_server_lacks_is_a_config_error_naming_those_it_has():
    async with fake("vllm_generate", model="mine") as server:
        with pytest.raises(ConfigError, match=r"model: .* serves mine"):
            await connect(server.url, vocab_size=VOCABULARY, model="yours")


async def test_a_server_that_does_not_tell_its_context_length_needs_it_set():
    async with fake("vllm_custom") as server:
        with pytest.raises(ConfigError, match="context_length"):
            await connect(server.url, vocab_size=VOCABULARY)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "localhost:8000"])
async def test_no_server_is_a_config_error_naming_base_url(url):
    with pytest.raises(ConfigError, match="base_url"):
        await connect(url, vocab_size=VOCABULARY)
    with pytest.raises(ConfigError, match="base_url"):
        engine = HttpEngine(url, VllmGenerate(), model="m", vocab_size=5, context_length=5)
        await engine.start()


async def test_a_server_of_another_kind_is_noticed_at_the_start():
    async with fake("sglang") as server:
        engine = HttpEngine(server.url, VllmGenerate(), model="m", vocab_size=5, context_length=5)
        with pytest.raises(ConfigError, match="has no /inference/v1/generate"):
            await engine.start()
