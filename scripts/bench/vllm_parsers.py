"""Runs vLLM's own parsers, in vLLM's interpreter: texts in on stdin as JSON, results out on the last line.

Used by the benchmark and by the differential test; imports nothing of this project. The tokenizer is built on
the spot: bytes, and every marker of every format as a special token, so that no model has to be downloaded.
Harmony needs its own vocabulary, where ``TIKTOKEN_ENCODINGS_BASE`` says.
"""

# pyright: reportMissingImports=false
# ruff: noqa: E501 - a table of markers

import json
import multiprocessing
import sys
import time
from types import SimpleNamespace

TIME_LIMIT_S = 20
"""For three runs of one text, wall time: a pattern that backtracks may never end."""
NAMES = {"phi4_mini": "phi4_mini_json", "mistral_v11": "mistral"}
MARKERS = [
    "<tool_call>", "</tool_call>", "<longcat_tool_call>", "</longcat_tool_call>", "<think>", "</think>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>", "<|python_tag|>", "<|python_start|>", "<|python_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]",
    "[THINK]", "[/THINK]", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    "<minimax:tool_call>", "</minimax:tool_call>", "<|tool_call|>", "<tool_calls>", "</tool_calls>",
    "<start_function_call>", "<end_function_call>", "<escape>", "<|im_end|>", "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "<function_calls>", "</function_calls>",
]  # fmt: skip


def build_tokenizer(family):
    """Build a tokenizer of bytes and markers; vLLM takes Mistral's for the older kind where one is missing."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    markers = [marker for marker in MARKERS if (family, marker) != ("mistral", "[ARGS]")]
    tokenizer.add_special_tokens([AddedToken(marker, special=True) for marker in markers])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")


def reader(family, tools):
    """Return a function that parses one text with vLLM's parser of the family."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "x"}], model="m", tools=tools, skip_special_tokens=False
    )
    tokenizer = build_tokenizer(family)
    if family == "gpt_oss":
        return harmony_reader(tokenizer, request)
    build = ToolParserManager.get_tool_parser(NAMES.get(family, family))

    def read(text):
        return build(tokenizer, request.tools).extract_tool_calls(text, request)

    return read


def harmony_reader(tokenizer, request):
    """Return a function that reads harmony from ids, as vLLM does; the vocabulary is OpenAI's."""
    from vllm.parser.harmony import HarmonyParser, get_encoding
    from vllm.reasoning.gptoss_reasoning_parser import GptOssReasoningParser
    from vllm.tool_parsers.gptoss_tool_parser import GptOssToolParser

    class Parser(HarmonyParser):
        reasoning_parser_cls = GptOssReasoningParser
        tool_parser_cls = GptOssToolParser

    def read(text):
        ids = get_encoding().encode(text, allowed_special="all")
        _, content, calls = Parser(tokenizer, request.tools).parse("", request, model_output_token_ids=ids)
        return SimpleNamespace(
            tool_calls=[SimpleNamespace(function=call) for call in calls or ()], content=content
        )

    return read


def parsed(read, text):
    """Return vLLM's calls as ``[name, arguments]``; arguments that are no JSON stay a string."""
    try:
        found = read(text)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    calls = []
    for call in found.tool_calls:
        try:
            arguments = json.loads(call.function.arguments)
        except ValueError:
            arguments = call.function.arguments
        calls.append([call.function.name, arguments])
    return {"calls": calls, "content": found.content}


def timed(read, text):
    """Return the least CPU time of parsing the text, in milliseconds; None where it took too long."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=best_of_three, args=(read, text, theirs))
    child.start()
    finished = ours.poll(TIME_LIMIT_S)
    child.kill()
    child.join()
    return ours.recv() if finished else None


def best_of_three(read, text, results):
    """Send the least CPU time of three runs, in milliseconds."""
    times = []
    for _ in range(3):
        start = time.process_time()
        read(text)
        times.append((time.process_time() - start) * 1e3)
    results.send(min(times))


def main():
    """Read the request, run the parsers, write the results."""
    request = json.load(sys.stdin)
    work = timed if request["mode"] == "time" else parsed
    results = {}
    for family, texts in request["texts"].items():
        try:
            read = reader(family, request["tools"])
        except Exception as error:
            print(f"{family}: {error}", file=sys.stderr)
            continue
        results[family] = {name: work(read, text) for name, text in texts.items()}
        print(f"{family}: done", file=sys.stderr)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
