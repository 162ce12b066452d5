"""The model families that sessions are tested with: a chat template and a tokenizer each.

Templates are ours, laid out as the family's own. Tokenizers are trained here in a moment; where the real ones
were fetched (``fetch_tokenizers.py``) the same tests run with them too.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from inference.bridge import Bridge
from inference.chat_template import ChatTemplate, shipped_template
from inference.encoding import TextEncoder
from inference.model_files import ModelFiles, load_model_files
from inference.probe import TemplateReport, probe
from scripts.fetch_model import NAME, default_cache
from tests.real_parts import unavailable

HERE = Path(__file__).parent
REAL = HERE.parents[2] / ".cache" / "tokenizers"
FETCH = "tests/inference/sessions/fetch_tokenizers.py"
CORPUS = [path.read_text() for path in sorted(HERE.parents[2].glob("trajectories/*.py"))]
CORPUS += ['Grüße, 東京 naïve café – “quoted” \t tabs\r\n  and   spaces 12345 {"a": [1, 2.5, null]} \\u00e9']

CHATML = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
QWEN_MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>"]
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"]
DEEPSEEK = (
    [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<think>",
        "</think>",
    ]
    + [
        f"<｜tool▁{part}▁{edge}｜>"
        for part in ("calls", "call", "outputs", "output")
        for edge in ("begin", "end")
    ]
    + ["<｜tool▁sep｜>"]
)
MISTRAL = ["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"] + [
    f"[{slash}{name}]" for name in ("AVAILABLE_TOOLS", "TOOL_RESULTS") for slash in ("", "/")
]


@dataclass(frozen=True)
class Family:
    name: str
    template: str
    tokenizer: str
    variables: dict = field(default_factory=dict)
    real: str | None = None
    """Folder of the real tokenizer, below ``REAL`` or absolute."""

    def __str__(self):
        return self.name


FAMILIES = [
    Family("hermes", "hermes", "chatml"),
    Family("smollm2", "smollm2", "chatml"),
    Family("qwen2.5", "qwen2_5", "qwen"),
    Family("qwen3", "qwen3", "qwen"),
    Family("qwen3-no-thinking", "qwen3", "qwen", {"enable_thinking": False}),
    Family("llama3", "llama3", "llama3", {"bos_token": "<|begin_of_text|>"}),
    Family("deepseek-v3", "deepseek_v3", "deepseek", {"bos_token": "<｜begin▁of▁sentence｜>"}),
    Family(
        "deepseek-r1", "deepseek_v3", "deepseek", {"bos_token": "<｜begin▁of▁sentence｜>", "thinking": True}
    ),
    Family("mistral", "mistral_v3", "mistral", {"bos_token": "<s>", "eos_token": "</s>"}),
]
REAL_FAMILIES = [
    Family("real-smollm2", "own", "chatml", real=str(default_cache() / NAME)),
    Family("real-hermes", "hermes", "chatml", real=str(default_cache() / NAME)),
    Family("real-qwen2.5", "own", "qwen", real="qwen2.5"),
    Family("real-qwen3", "own", "qwen", real="qwen3"),
    Family("real-llama3", "own", "llama3", real="llama3.2"),
    Family(
        "real-deepseek-v3", "deepseek_v3", "deepseek", {"bos_token": "<｜begin▁of▁sentence｜>"}, "deepseek"
    ),
    Family("real-mistral", "mistral_v3", "mistral", {"bos_token": "<s>", "eos_token": "</s>"}, "mistral"),
    Family("real-mistral-nemo", "own", "mistral", real="mistral-nemo"),
]


@dataclass(frozen=True)
class Loaded:
    """A family ready for use."""

    files: ModelFiles
    template: ChatTemplate
    bridge: Bridge
    report: TemplateReport

    @property
    def encoder(self) -> TextEncoder:
        return self.bridge.encoder


@cache
def _load(name: str) -> Loaded:
    family = next(family for family in FAMILIES + REAL_FAMILIES if family.name == name)
    files = load_model_files(REAL / family.real) if family.real else None
    tokenizer = files.tokenizer if files else trained(family.tokenizer)
    source = files.chat_template if files and family.template == "own" else template_text(family.template)
    variables = {**(files.special_tokens if files else {}), **family.variables}
    files = ModelFiles(tokenizer, source, variables)
    template = ChatTemplate(source, variables=variables, name=name)
    encoder = TextEncoder(tokenizer)
    report = probe(template, encoder)
    return Loaded(files, template, Bridge(template, encoder, report.conventions), report)


def load(family: Family) -> Loaded:
    """Load a family once; a real one that was not fetched fails on CI and is skipped elsewhere."""
    if family.real and not (REAL / family.real / "tokenizer.json").is_file():
        script = "scripts/fetch_model.py" if Path(family.real).is_absolute() else FETCH
        unavailable(f"{REAL / family.real} is missing; run: python {script}")
    return _load(family.name)


def template_text(name: str) -> str:
    return shipped_template() if name == "hermes" else (HERE / "templates" / f"{name}.jinja").read_text()


@cache
def trained(kind: str) -> Tokenizer:
    """Train a small tokenizer built as the family's."""
    special = {
        "chatml": CHATML,
        "qwen": CHATML,
        "llama3": LLAMA3,
        "deepseek": DEEPSEEK,
        "mistral": MISTRAL,
    }[kind]
    tokenizer = _sentencepiece() if kind == "mistral" else _byte_level(kind)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    if kind == "qwen":
        tokenizer.add_tokens([AddedToken(token, normalized=False) for token in QWEN_MARKS])
    return tokenizer


def _byte_level(kind: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    words = Regex(
        r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=800, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def _sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=900, special_tokens=["<unk>", *byte_pieces], show_progress=False, limit_alphabet=90
        ),
    )
    return _with_ordinary_bytes(tokenizer, byte_pieces)


def _with_ordinary_bytes(tokenizer: Tokenizer, byte_pieces: list[str]) -> Tokenizer:
    """Make byte pieces ordinary vocabulary, which the trainer can only add as special tokens."""
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] not in byte_pieces]
    return Tokenizer.from_str(json.dumps(spec))
