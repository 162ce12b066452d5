"""Copy a model folder so that its output head is a weight of its own: the same function, reloadable by vLLM.

    python scripts/untie_embeddings.py MODEL FOLDER

See `inference.vllm_weights` for why vLLM on a CPU needs it for weight hand-over.
"""

import argparse
import json
import shutil
from pathlib import Path

from trainers.grpo_config import GrpoConfig
from trainers.policy import open_policy


def untie(model: Path, folder: Path) -> None:
    """Write the copy; a folder that is there is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    open_policy(GrpoConfig(model=model, output_dir=folder), None).export(folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tie_word_embeddings": False}, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    untie(arguments.model, arguments.folder)
