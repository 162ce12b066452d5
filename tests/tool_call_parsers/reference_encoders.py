"""What the makers' own encoders write for a message; run in the interpreter of a vLLM installation.

Messages in on stdin as JSON, texts out on the last line. mistral-common and openai_harmony come with vLLM,
and so does the encoder that DeepSeek publishes beside its models. The vocabulary of harmony lies where
``TIKTOKEN_ENCODINGS_BASE`` says. Imports nothing of this project.
"""

# pyright: reportMissingImports=false

import json
import re
import sys
from pathlib import Path

USER = {"role": "user", "content": "question"}


def in_openai_form(message):
    """Return a message as OpenAI's API has it, with the arguments as text."""
    calls = [
        {"id": call["id"], "type": "function"}
        | {"function": {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}}
        for call in message["calls"]
    ]
    told = {"role": "assistant", "content": message["content"] or "", "tool_calls": calls}
    if message["reasoning"] is not None:
        told |= {"reasoning": message["reasoning"], "reasoning_content": message["reasoning"]}
    return told


def deepseek(module):
    """Return DeepSeek's encoder of one version."""

    def write(message):
        mode = "chat" if message["reasoning"] is None else "thinking"
        text = module.encode_messages([USER, in_openai_form(message)], thinking_mode=mode)
        answer = text.partition("<｜Assistant｜>")[2]
        return answer.removeprefix("</think>").removesuffix(module.eos_token)

    return write


def mistral(tokenizer_class, tokenizer):
    """Return mistral-common's encoder of one version."""
    from mistral_common.protocol.instruct.messages import AssistantMessage, ThinkChunk
    from mistral_common.protocol.instruct.tool_calls import FunctionCall, ToolCall
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

    encoder = tokenizer_class(tokenizer)

    def write(message):
        calls = [
            ToolCall(
                id=call["id"],
                function=FunctionCall(
                    name=call["name"], arguments=json.dumps(call["arguments"], ensure_ascii=False)
                ),
            )
            for call in message["calls"]
        ]
        content = message["content"]
        if message["reasoning"] is not None:
            text = [{"type": "text", "text": content}] if content else []
            content = [ThinkChunk(thinking=message["reasoning"]), *text]
        told = AssistantMessage(content=content, tool_calls=calls)
        ids = encoder.encode_assistant_message(told, False)
        return plain(tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP)).removesuffix("</s>")

    return write


def plain(pieces):
    """Return the text of SentencePiece's pieces, which show blanks and single bytes by signs of their own."""
    text = re.sub(
        "(?:<0x[0-9A-F]{2}>)+",
        lambda found: bytes.fromhex(found[0].replace("<0x", "").replace(">", "")).decode(),
        pieces,
    )
    return text.replace("▁", " ")


def tekken(version):
    """Build a tokenizer of one version: its control tokens over the vocabulary that mistral-common ships."""
    from mistral_common import data
    from mistral_common.tokens.tokenizers.base import SpecialTokens, TokenizerVersion
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    model = json.loads((Path(next(iter(data.__path__))) / "tekken_240911.json").read_text())
    special = [
        {"rank": rank, "token_str": token.value, "is_control": True}
        for rank, token in enumerate(SpecialTokens)
    ]
    config = model["config"]
    return Tekkenizer(
        model["vocab"],
        special,
        config["pattern"],
        config["default_vocab_size"],
        config["default_num_special_tokens"],
        TokenizerVersion(version),
    )


def sentencepiece():
    """Load the tokenizer of Mistral 7B v0.3."""
    from mistral_common import data
    from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer

    folder = Path(next(iter(data.__path__)))
    return SentencePieceTokenizer(folder / "mistral_instruct_tokenizer_240323.model.v3")


def harmony():
    """Return OpenAI's encoder."""
    import openai_harmony as library

    encoding = library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)

    def said(text, channel):
        return library.Message.from_role_and_content(library.Role.ASSISTANT, text).with_channel(channel)

    def write(message):
        parts = []
        if message["reasoning"] is not None:
            parts.append(said(message["reasoning"], "analysis"))
        if message["content"] is not None:
            parts.append(said(message["content"], "commentary" if message["calls"] else "final"))
        for call in message["calls"]:
            body = said(json.dumps(call["arguments"], ensure_ascii=False), "commentary")
            body = body.with_recipient(f"functions.{call['name']}")
            parts.append(body.with_content_type("<|constrain|>json"))
        return "".join(encoding.decode(encoding.render(part)) for part in parts)

    return write


def encoders():
    """Return every encoder by its name."""
    from mistral_common.tokens.tokenizers import instruct
    from vllm.tokenizers import deepseek_v4_encoding, deepseek_v32_encoding

    return {
        "deepseek_v32": deepseek(deepseek_v32_encoding),
        "deepseek_v4": deepseek(deepseek_v4_encoding),
        "mistral v3": mistral(instruct.InstructTokenizerV3, sentencepiece()),
        "mistral v3 tekken": mistral(instruct.InstructTokenizerV3, tekken("v3")),
        "mistral v11": mistral(instruct.InstructTokenizerV11, tekken("v11")),
        "mistral v13": mistral(instruct.InstructTokenizerV13, tekken("v13")),
        "harmony": harmony(),
    }


def main():
    """Read the messages, write them with every encoder; a refusal is told as its exception's text."""
    messages = json.load(sys.stdin)
    results = {}
    for name, write in encoders().items():
        results[name] = {}
        for title, message in messages.items():
            try:
                results[name][title] = {"text": write(message)}
            except Exception as error:
                results[name][title] = {"refused": f"{type(error).__name__}: {error}"}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
