"""How each family writes a call, spelled out here by hand: the oracle the parsers are tested against."""

# ruff: noqa: E501 - a table reads better with one entry a line

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "number"},
                    "flag": {"type": "boolean"},
                    "items": {"type": "array"},
                    "options": {"type": "object"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "zip": {"type": "string"},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def raw(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


@dataclass(frozen=True)
class Spelling:
    family: str
    call: Callable[[str, dict], str]
    bad: str
    """A malformed call, as one of several in a turn."""
    bad_kind: str
    opener: str
    turn: Callable[[list[str]], str] = "\n".join
    think: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    end_of_turn: str = "<|im_end|>"
    raw_values: bool = False
    markers: tuple[str, ...] = ()
    """What the format writes outside of calls, besides ``opener``, think and end-of-turn markers."""
    text: Callable[[str], str] = "{}\n".format
    """Content before calls."""


def hermes(tag: str) -> Callable[[str, dict], str]:
    return lambda name, args: f"<{tag}>\n{dumps({'name': name, 'arguments': args})}\n</{tag}>"


def qwen3_coder(name, args):
    lines = "".join(f"<parameter={key}>\n{raw(value)}\n</parameter>\n" for key, value in args.items())
    return f"<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"


def deepseek_v3(name, args):
    return (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumps(args)}\n```<｜tool▁call▁end｜>"
    )


def deepseek_turn(calls):
    return "<｜tool▁calls▁begin｜>" + "\n".join(calls) + "<｜tool▁calls▁end｜>"


def dsml(name, args):
    lines = "".join(
        f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{raw(value)}'
        "</｜DSML｜parameter>\n"
        for key, value in args.items()
    )
    return f'<｜DSML｜invoke name="{name}">\n{lines}</｜DSML｜invoke>'


def minimax(name, args):
    lines = "".join(f'<parameter name="{key}">{raw(value)}</parameter>\n' for key, value in args.items())
    return f'<invoke name="{name}">\n{lines}</invoke>'


def glm(newline):
    def call(name, args):
        pairs = "".join(
            f"<arg_key>{key}</arg_key>{newline}<arg_value>{raw(value)}</arg_value>{newline}"
            for key, value in args.items()
        )
        return f"<tool_call>{name}{newline}{pairs}</tool_call>"

    return call


def kimi(name, args):
    return f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{dumps(args)}<|tool_call_end|>"


def python(name, args):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"


def olmo(name, args):
    return f"{name}({', '.join(f'{key}={dumps(value)}' for key, value in args.items())})"


def gemma(value):
    if isinstance(value, str):
        return f"<escape>{value}<escape>"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(gemma(item) for item in value) + "]"
    return dumps(value)


def xml(name, args):
    lines = "".join(f"    <{key}>{raw(value)}</{key}>\n" for key, value in args.items())
    return f"<tool_call>\n  <name>{name}</name>\n  <arguments>\n{lines}  </arguments>\n</tool_call>"


def harmony(name, args):
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json"
    return f"{header}<|message|>{dumps(args)}<|call|>"


def json_call(arguments="arguments"):
    return lambda name, args: dumps({"name": name, arguments: args})


BAD_JSON = '{"name": "add", "arguments": {"a": 1,}}'
DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
DSML_V32 = ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")
DSML_V4 = ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")
MINIMAX = ("<minimax:tool_call>", "</minimax:tool_call>")
KIMI = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
BAD_DSML = '<｜DSML｜invoke name="add">\n<｜DSML｜parameter name="a" string="false">1\n</｜DSML｜invoke>'


def wrapped(markers):
    return lambda calls: markers[0] + "\n" + "\n".join(calls) + "\n" + markers[1]


def listed(before, after=""):
    return lambda calls: before + "[" + ", ".join(calls) + "]" + after


SPELLINGS = {
    spelling.family: spelling
    for spelling in [
        Spelling("hermes", hermes("tool_call"), f"<tool_call>\n{BAD_JSON}\n</tool_call>", "invalid_json", "<tool_call>"),
        Spelling(
            "longcat", hermes("longcat_tool_call"),
            f"<longcat_tool_call>\n{BAD_JSON}\n</longcat_tool_call>", "invalid_json", "<longcat_tool_call>",
        ),
        Spelling(
            "qwen3_coder", qwen3_coder,
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</function>\n</tool_call>", "bad_structure", "<tool_call>",
            raw_values=True,
        ),
        Spelling(
            "deepseek_v3", deepseek_v3,
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1,}\n```<｜tool▁call▁end｜>",
            "invalid_json", "<｜tool▁call▁begin｜>", deepseek_turn, end_of_turn="<｜end▁of▁sentence｜>", markers=DEEPSEEK, text=str,
        ),
        Spelling(
            "deepseek_v31",
            lambda name, args: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumps(args)}<｜tool▁call▁end｜>",
            '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1,}<｜tool▁call▁end｜>',
            "invalid_json", "<｜tool▁call▁begin｜>", deepseek_turn, end_of_turn="<｜end▁of▁sentence｜>", markers=DEEPSEEK, text=str,
        ),
        Spelling(
            "deepseek_v32", dsml, BAD_DSML, "bad_structure", "<｜DSML｜function_calls>", wrapped(DSML_V32), ("<think>", "</think>"),
            end_of_turn="<｜end▁of▁sentence｜>", markers=DSML_V32, raw_values=True,
        ),
        Spelling(
            "deepseek_v4", dsml, BAD_DSML, "bad_structure", "<｜DSML｜tool_calls>", wrapped(DSML_V4), ("<think>", "</think>"),
            end_of_turn="<｜end▁of▁sentence｜>", markers=DSML_V4, raw_values=True,
        ),
        Spelling(
            "llama3_json", json_call("parameters"), '{"name": "add", "parameters": {"a": 1,}}', "invalid_json",
            "<|python_tag|>", end_of_turn="<|eot_id|>", markers=(";",),
        ),
        Spelling(
            "llama4_pythonic", python, "add(1)", "bad_structure", "<|python_start|>", listed(""),
            end_of_turn="<|eot|>", markers=("[", "]", ",", "<|python_end|>"),
        ),
        Spelling(
            "pythonic", python, "add(1)", "bad_structure", "[", listed(""),
            end_of_turn="<|eot_id|>", markers=("[", "]", ","),
        ),
        Spelling(
            "olmo3", olmo, "add(1)", "bad_structure", "<function_calls>",
            lambda calls: "<function_calls>\n" + "\n".join(calls) + "\n</function_calls>",
            markers=("<function_calls>", "</function_calls>", ","),
        ),
        Spelling(
            "mistral", json_call(), BAD_JSON, "invalid_json", "[TOOL_CALLS]", listed("[TOOL_CALLS] "),
            ("[THINK]", "[/THINK]"), "</s>", markers=("[", "]", ","), text=str,
        ),
        Spelling(
            "mistral_v11", lambda name, args: f"[TOOL_CALLS]{name}[ARGS]{dumps(args)}",
            '[TOOL_CALLS]add[ARGS]{"a": 1,}', "invalid_json", "[TOOL_CALLS]", "".join,
            ("[THINK]", "[/THINK]"), "</s>", text=str,
        ),
        Spelling(
            "glm45", glm("\n"), "<tool_call>add\n<arg_key>a</arg_key>\n1\n</tool_call>", "bad_structure", "<tool_call>",
            end_of_turn="<|user|>", raw_values=True,
        ),
        Spelling(
            "glm47", glm(""), "<tool_call>add<arg_key>a</arg_key>1</tool_call>", "bad_structure", "<tool_call>",
            end_of_turn="<|observation|>", raw_values=True,
        ),
        Spelling(
            "kimi_k2", kimi,
            '<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1,}<|tool_call_end|>',
            "invalid_json", "<|tool_call_begin|>", lambda calls: KIMI[0] + "".join(calls) + KIMI[1], markers=KIMI, text=str,
        ),
        Spelling(
            "gpt_oss", harmony, '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1,}<|call|>',
            "invalid_json", "<|channel|>", "<|start|>assistant".join,
            ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
            "<|return|>", markers=("<|start|>assistant", "<|channel|>", "final", "commentary", "<|message|>", "<|end|>", "<|call|>"),
            text=lambda text: f"<|channel|>commentary<|message|>{text}<|end|><|start|>assistant",
        ),
        Spelling(
            "minimax_m2", minimax, '<invoke name="add">\n<parameter name="a">1\n</invoke>', "bad_structure",
            "<minimax:tool_call>", wrapped(MINIMAX), end_of_turn="[e~[", markers=MINIMAX, raw_values=True,
        ),
        Spelling(
            "granite", json_call(), BAD_JSON, "invalid_json", "<|tool_call|>", listed("<|tool_call|>"),
            end_of_turn="<|end_of_text|>", markers=("[", "]", ","),
        ),
        Spelling(
            "phi4_mini", json_call(), BAD_JSON, "invalid_json", "functools", listed("functools"),
            end_of_turn="<|end|>", markers=("[", "]", ","),
        ),
        Spelling(
            "hunyuan_a13b", json_call(), BAD_JSON, "invalid_json", "<tool_calls>",
            listed("<tool_calls>", "</tool_calls>"), end_of_turn="<|eos|>", markers=("[", "]", ",", "</tool_calls>"),
        ),
        Spelling(
            "functiongemma",
            lambda name, args: f"<start_function_call>call:{name}{gemma(args)}<end_function_call>",
            "<start_function_call>call:add{a:one}<end_function_call>", "bad_structure", "<start_function_call>",
            "".join, end_of_turn="<end_of_turn>",
        ),
        Spelling(
            "xml", xml,
            "<tool_call>\n  <name>add</name>\n  <arguments>\n    <a>1\n  </arguments>\n</tool_call>",
            "bad_structure", "<tool_call>", raw_values=True,
        ),
        Spelling("json", json_call(), BAD_JSON, "invalid_json", "```json", markers=("```json", "```")),
        Spelling(
            "react", lambda name, args: f"TOOL: {python(name, args)}", "TOOL: add(1, 2)", "bad_structure", "TOOL:",
            markers=("ANSWER:",),
        ),
    ]
}  # fmt: skip
