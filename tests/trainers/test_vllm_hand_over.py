"""New weights for a real vLLM: what it samples afterwards is what the new weights sample, and says so."""

import asyncio

import pytest

from inference.detect import connect
from inference.embedded import EmbeddedEngine
from inference.managed import ManagedClient
from inference.vllm_weights import VllmWeights
from tests.inference.engines.test_vllm_server import VOCABULARY, equal_up_to_a_tie, running
from tests.real_parts import ON_VLLM
from trainers.grpo_config import GrpoConfig
from trainers.hand_over import ThroughFolder
from trainers.policy import open_policy
from trajectories.messages import Message
from trajectories.turn import PolicySpan, SamplingParams

pytestmark = [*ON_VLLM, pytest.mark.model]

torch = pytest.importorskip("torch")

GREEDY = SamplingParams(max_tokens=16, temperature=0)
QUESTION = [Message.user("What is the capital of France?")]


async def ask(client, sampling=GREEDY):
    async with client.session("a", QUESTION, []) as session:
        return (await session.extend([], sampling)).turn


@pytest.fixture
def original(model_folder, tmp_path):
    return open_policy(GrpoConfig(model=model_folder, output_dir=tmp_path), None)


@pytest.fixture
def policy(model_folder, tmp_path):
    """The model with every weight changed a little, in a fixed way."""
    policy = open_policy(GrpoConfig(model=model_folder, output_dir=tmp_path), None)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise * parameter.std() * 0.1)
    return policy


async def test_vllm_samples_with_the_weights_it_was_handed_and_names_their_version(
    vllm_url, model_folder, original, policy, tmp_path
):
    engine = await connect(vllm_url, vocab_size=VOCABULARY)
    vllm = ManagedClient(engine, model_folder)
    servers = VllmWeights([vllm_url])
    hand_over = ThroughFolder(tmp_path / "weights", [servers])
    await asyncio.to_thread(original.export, tmp_path / "original")
    await vllm.start()
    await servers.update_weights(tmp_path / "original", "6")
    try:
        before = await ask(vllm)
        long = asyncio.create_task(ask(vllm, SamplingParams(max_tokens=60, temperature=1.0, seed=3)))
        while not (long.done() or await asyncio.to_thread(running, vllm_url)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        handed = asyncio.create_task(hand_over(policy, "7"))
        interrupted = await long
        await handed
        after = await ask(vllm)
        await expect_weights(tmp_path / "weights" / "version-7", model_folder, after)
    finally:
        await servers.update_weights(tmp_path / "original", "0")
        restored = await ask(vllm)
        await vllm.close()

    assert before.policy_versions == [PolicySpan("6", 0, len(before.output_ids))]
    assert interrupted.policy_versions == [PolicySpan("6", 0, len(interrupted.output_ids))]
    assert after.policy_versions == [PolicySpan("7", 0, len(after.output_ids))]
    assert after.output_ids != before.output_ids
    assert restored.output_ids == before.output_ids


async def expect_weights(folder, model_folder, turn) -> None:
    """The embedded engine, on the weights of ``folder``, samples the same and gives the same logprobs."""
    engine = EmbeddedEngine(folder)
    embedded = ManagedClient(engine, model_folder)
    await embedded.start()
    try:
        expected = await ask(embedded)
        prompt = list(expected.prompt_ids)
        assert prompt == list(turn.prompt_ids)
        equal = await equal_up_to_a_tie(engine, prompt, expected.output_ids, turn.output_ids)
        assert equal > 0
        assert turn.output_logprobs[:equal] == pytest.approx(expected.output_logprobs[:equal], abs=1e-3)
    finally:
        await embedded.close()
