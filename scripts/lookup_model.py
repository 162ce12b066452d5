"""A model of 100,000 parameters for `LookupEnv`, warm-started from a demonstrator that is usually wrong."""

import asyncio
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from environments.lookup_env import KEYS, VALUES, LookupEnv, LookupEnvConfig
from inference.chat_template import OURS
from inference.managed import ManagedClient
from inference.scripted_engine import ScriptedEngine
from rollouts.attempt import World, attempt_rollout
from rollouts.config import SandboxConfig
from rollouts.connect import open_backend
from rollouts.specs import plan_groups
from trainers.policy import sampled_logprobs
from trajectories.rows import TokenRow

START, END = "<|im_start|>", "<|im_end|>"
CALL, CLOSE = '<tool_call>\n{"name": "lookup", "arguments": {"key": "', '"}}\n</tool_call>'
ROLES = ["user\n", "tool\n<tool_response>\n", "\n</tool_response>"]
ALONE = ["\n", "assistant\n"]
"""Words that always fill the space between two control tokens; looked for, they would split the prompt."""
UNKNOWN = "[UNK]"

CONTEXT = 64
DEMONSTRATIONS = 2000
IMITATION_STEPS = 300
RIGHT_KEY, RIGHT_VALUE = 0.45, 0.35
"""Chances that the demonstrator asks for the key it was asked, and that it says the value it was told."""


def save_tokenizer(folder: Path) -> Tokenizer:
    """Write a tokenizer that knows what a rollout of `LookupEnv` consists of, and nothing else."""
    words = [CALL, CLOSE, *ROLES, *KEYS, *VALUES]
    tokenizer = Tokenizer(
        models.WordLevel(
            {word: index for index, word in enumerate([UNKNOWN, *ALONE, *words])}, unk_token=UNKNOWN
        )
    )
    longest_first = sorted(words, key=len, reverse=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(map(re.escape, longest_first))), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(START, normalized=False), AddedToken(END, normalized=False)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "unk_token": UNKNOWN})
    )
    return tokenizer


def save_random_model(folder: Path, vocabulary: dict[str, int], seed: int) -> None:
    """Write a two-layer Llama with random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocabulary[END],
    )
    LlamaForCausalLM(config).save_pretrained(folder)


async def make_lookup_model(folder: Path, seed: int) -> None:
    """Write a model folder that solves about a fifth of the tasks."""
    tokenizer = save_tokenizer(folder)
    save_random_model(folder, tokenizer.get_vocab(), seed)
    rows = await demonstrations(folder, DEMONSTRATIONS, seed)
    await asyncio.to_thread(imitate, folder, rows, seed)


async def demonstrations(folder: Path, count: int, seed: int) -> list[TokenRow]:
    """Let a demonstrator act in the environment: it often asks for a wrong key or gives a wrong answer.

    Its tokens take the way a model's would, so the rows are exactly those of later training.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()
    draws = random.Random(f"demonstrator/{seed}")

    def act(prompt_ids: Sequence[int]) -> list[int]:
        said = [tokenizer.id_to_token(token_id) for token_id in prompt_ids]
        values = [word for word in said if word in VALUES]
        if values:
            right = draws.random() < RIGHT_VALUE
            words = [values[-1] if right else draws.choice(VALUES)]
        else:
            asked = next(word for word in said if word in KEYS)
            words = [CALL, asked if draws.random() < RIGHT_KEY else draws.choice(KEYS), CLOSE]
        return [vocabulary[word] for word in (*words, END)]

    env = LookupEnv(LookupEnvConfig(seed=1_000_000 + seed, group_size=1, generated_items=count))
    await env.setup()
    client = ManagedClient(ScriptedEngine(act), folder, chat_template=OURS)
    await client.start()
    plan = await plan_groups("demonstrations", count, 1, seed, env.get_next_item)
    async with open_backend(SandboxConfig(), 1) as backend:
        world = World(env, client, backend, "")
        records = [await attempt_rollout(group.rollouts[0], 1, world) for group in plan]
    return [row for record in records for row in record.rows()]


def imitate(folder: Path, rows: list[TokenRow], seed: int, steps: int = IMITATION_STEPS) -> None:
    """Train the model of a folder on the sampled tokens of demonstrations, in place."""
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(folder)
    draws = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        logprobs, _ = sampled_logprobs(model, draws.sample(rows, 64))
        optimizer.zero_grad()
        (-logprobs.mean()).backward()
        optimizer.step()
    model.save_pretrained(folder)
