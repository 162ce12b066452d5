"""Score stored trajectories again and fail if the record is not what the engine sampled.

    python scripts/audit.py data/run.jsonl --engine http://127.0.0.1:8000 --tokenizer Qwen/Qwen3-8B
    python scripts/audit.py data/run.jsonl --engine path/to/model/folder

The engine is a server's URL, or a model folder for the embedded engine; it must hold the weights that
sampled. Exits with 0 if the record is true, with 1 on any violation, with 2 if nothing could be compared.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from inference.audit import AuditReport, audit
from inference.detect import connect
from inference.embedded import EmbeddedEngine
from inference.engine import Engine
from inference.model_files import load_model_files
from trajectories.errors import ConfigError, LachesisError
from trajectories.record import read_trajectories

MAX_DELTA = 1e-3
"""Twenty times the largest difference between sampling and scoring in float32 that was measured (vLLM on
a CPU, 4.9e-5). Lower precision needs more: audit a fresh run to learn how much."""


async def run(
    path: Path, engine_name: str, tokenizer: str | None, max_delta: float, *, model: str | None = None
) -> AuditReport:
    """Audit one file.

    Raises:
        LachesisError: The file can't be read, or the engine can't be reached or can't score.
        OSError: There is no such file.
    """
    engine = await _engine(engine_name, tokenizer, model)
    await engine.start()
    try:
        return await audit(read_trajectories(path), engine, max_delta=max_delta)
    finally:
        await engine.close()


async def _engine(name: str, tokenizer: str | None, model: str | None) -> Engine:
    if not name.startswith(("http://", "https://")):
        return EmbeddedEngine(name)
    if tokenizer is None:
        raise ConfigError("--tokenizer: a server does not tell its vocabulary; name the model's folder")
    files = await asyncio.to_thread(load_model_files, tokenizer)
    return await connect(name, vocab_size=files.vocab_size, model=model)


def main() -> int:
    """Read the command line, audit, print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="trajectories, one a line")
    parser.add_argument("--engine", required=True, help="a server's URL, or a model folder")
    parser.add_argument("--tokenizer", help="the model's folder or hub name, for a server")
    parser.add_argument("--model", help="the name a server knows it by, if it serves several")
    parser.add_argument(
        "--max-delta", type=float, default=MAX_DELTA, help="largest |Δ logprob| that is noise (%(default)s)"
    )
    args = parser.parse_args()
    try:
        report = asyncio.run(run(args.data, args.engine, args.tokenizer, args.max_delta, model=args.model))
    except (LachesisError, OSError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print(report)
    if report.violations:
        return 1
    if not report.compared:
        print("audit: nothing was compared, so nothing is proved", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
