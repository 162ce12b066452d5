"""A model without weights: real sessions, real tokens, and text that was written beforehand.

Every byte is a token, so there is nothing to download. What is tested or shown with it goes through the same
template, bridge, parser and rows as with a language model.
"""

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from inference.chat_template import shipped_template
from inference.managed import ManagedClient
from inference.model_files import ModelFiles
from inference.scripted_engine import ScriptedEngine
from tool_call_parsers import get_parser
from trajectories.messages import Message

END = "<|im_end|>"


def scripted_model(
    replies: Sequence[str | Message | Exception],
    *,
    context_length: int = 1 << 20,
    policy_version: str | None = None,
) -> ManagedClient:
    """Return a client whose every session samples ``replies`` in order.

    Args:
        replies: Completion texts, messages to be written in the hermes format, or errors to raise. A text is
            sampled as it is: without ``<|im_end|>`` at its end, it was cut by ``max_tokens``.
        context_length: Most tokens that prompt and output may have together.
        policy_version: Reported for every output; None reports none.
    """
    files = byte_model_files()
    parser = get_parser("hermes")

    def sampled(reply: str | Message | Exception) -> list[int] | Exception:
        if isinstance(reply, Exception):
            return reply
        text = reply if isinstance(reply, str) else parser.render(reply) + END
        return files.tokenizer.encode(text, add_special_tokens=False).ids

    engine = ScriptedEngine(
        [sampled(reply) for reply in replies],
        vocab_size=files.vocab_size,
        context_length=context_length,
        policy_version=policy_version,
    )
    return ManagedClient(engine, files)


def byte_model_files() -> ModelFiles:
    """Return a tokenizer of single bytes with ChatML's control tokens, and the shipped chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    control = ["<|im_start|>", END, "<|endoftext|>"]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return ModelFiles(tokenizer, shipped_template())
