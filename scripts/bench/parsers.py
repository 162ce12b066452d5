"""How fast the parsers are: against ``json.loads`` of the same JSON, streamed token by token, and in growth.

    python scripts/bench/parsers.py
    python scripts/bench/parsers.py --vllm-python /path/to/python    # vLLM's parsers side by side

CPU time of one thread, best of several runs. In parentheses: how many times that of ``json.loads`` on the
``{"name": …, "arguments": …}`` of each call, one by one, measured in turn with the parse so that both see the
same machine. Bars: a complete parse of a JSON format at most 2x that; 200 kB raw values under 5 ms; 4k tokens
streamed one by one under 20 ms; double the input, at most double the time.
"""

import argparse
import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tool_call_parsers import get_parser
from tool_call_parsers.registry import PARSERS
from trajectories.messages import Message, ToolCall

TOKEN_CHARS = 4
TOOLS = [
    {
        "type": "function",
        "function": {"name": "write", "parameters": {"properties": {"content": {"type": "string"}}}},
    }
]
LINE = 'for name in names:\n    print(f"{name!r} < {len(name)}", end="\\t")  # <b>x</b>\n'


def text_of(size: int) -> str:
    """Return code-like text of about ``size`` characters."""
    return (LINE * (size // len(LINE) + 1))[:size]


def payloads() -> dict[str, list[dict[str, str]]]:
    """Return the arguments of the calls in each complete payload, by its name."""
    return {
        "2 kB": [{"content": text_of(2_000)}],
        "200 kB": [{"content": text_of(200_000)}],
        "64 calls": [{"content": text_of(200)} for _ in range(64)],
    }


def best_of(rounds: int, *works: Callable[[], object], times: int = 1) -> list[float]:
    """Return the least CPU time of each of ``works`` in milliseconds, measured in turn."""
    best = [math.inf] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = time.process_time()
            for _ in range(times):
                work()
            best[index] = min(best[index], (time.process_time() - start) * 1e3 / times)
    return best


def rendered(family: str, arguments: list[dict[str, str]]) -> str:
    """Write the calls in the family's format."""
    calls = [ToolCall(f"call_{index}", "write", given) for index, given in enumerate(arguments)]
    return get_parser(family, TOOLS).render(Message.assistant(tool_calls=calls))


def streaming(family: str, tokens: int) -> Callable[[], None]:
    """Return what feeds one call of so many tokens, a token at a time."""
    text = rendered(family, [{"content": text_of(tokens * TOKEN_CHARS)}])
    deltas = [text[at : at + TOKEN_CHARS] for at in range(0, len(text), TOKEN_CHARS)]
    parser = get_parser(family, TOOLS)

    def work() -> None:
        running = parser.stream()
        for delta in deltas:
            running.feed(delta)
        assert len(running.finish().tool_calls) == 1

    return work


def measure(family: str) -> dict[str, float]:
    """Measure one family."""
    parser = get_parser(family, TOOLS)
    row: dict[str, float] = {}
    for name, arguments in payloads().items():
        text = rendered(family, arguments)
        bodies = [json.dumps({"name": "write", "arguments": given}) for given in arguments]
        assert len(parser.parse(text).tool_calls) == len(arguments)
        parse, loads = best_of(
            100,
            lambda text=text: parser.parse(text),
            lambda bodies=bodies: [json.loads(body) for body in bodies],
            times=1 if len(text) > 5_000 else 20,
        )
        row[name], row[f"{name}, x json.loads"] = parse, parse / loads
    four, eight, sixteen = best_of(5, *(streaming(family, tokens) for tokens in (4_000, 8_000, 16_000)))
    row["4k stream"], row["16k/8k stream"] = four, sixteen / eight
    return row


def vllm_rows(python: Path, families: list[str]) -> dict[str, dict[str, float | None]]:
    """Measure vLLM's parsers in their own interpreter; None where one took too long."""
    helper = Path(__file__).parent / "vllm_parsers.py"
    texts = {
        family: {name: rendered(family, arguments) for name, arguments in payloads().items()}
        for family in families
    }
    request = json.dumps({"mode": "time", "tools": TOOLS, "texts": texts})
    result = subprocess.run([python, helper], input=request, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    """Print one line a family."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("families", nargs="*", default=list(PARSERS))
    options.add_argument("--vllm-python", type=Path, help="interpreter of a vLLM installation")
    given = options.parse_args()
    theirs = vllm_rows(given.vllm_python, given.families) if given.vllm_python else {}
    print(f"{'ms of CPU':16}", *(f"{name:>18}" for name in payloads()), "   4k stream  16k/8k")
    for family in given.families:
        row = measure(family)
        cells = [f"{row[name]:8.3f} ({row[f'{name}, x json.loads']:4.1f}x)" for name in payloads()]
        streamed = f"{row['4k stream']:11.1f}  {row['16k/8k stream']:6.2f}"
        print(f"{family:16}", *(f"{cell:>18}" for cell in cells), streamed)
        if family in theirs:
            times = (theirs[family][name] for name in payloads())
            cells = ["stopped" if took is None else f"{took:8.3f}        " for took in times]
            print(f"{'  vLLM':16}", *(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
