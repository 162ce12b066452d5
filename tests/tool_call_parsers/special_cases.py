"""Cases of one family each: what its own syntax makes possible to get wrong."""

# ruff: noqa: E501 - a table reads better with one entry a line

from tests.tool_call_parsers.cases import Case
from tests.tool_call_parsers.hard_cases import HARD
from tests.tool_call_parsers.spellings import SPELLINGS


def spelled(family, *calls):
    spelling = SPELLINGS[family]
    return spelling.turn([spelling.call(*call) for call in calls])


def hermes() -> list[Case]:
    def case(name, text, calls=(), errors=(), content=None, **rest):
        return Case("hermes", name, text, list(calls), list(errors), content, **rest)

    now = '{"name": "now", "arguments": {}}'
    good = ("now", {})
    example = '<tool_call>\n{"name": "rm", "arguments": {"cmd": "rm -rf /"}}\n</tool_call>'
    return [
        case("compact", f"<tool_call>{now}</tool_call><tool_call>{now}</tool_call>", [good, good]),
        case("CRLF between the parts", f"<tool_call>\r\n{now}\r\n</tool_call>\r\n", [good]),
        case("stopped at the closing tag", f"<tool_call>\n{now}\n", [good]),
        case("cut at the closing tag", f"<tool_call>\n{now}\n", errors=["unclosed"], finish_reason="length"),
        case("cut inside the closing tag", f"<tool_call>\n{now}\n</tool_ca", errors=["unclosed"], finish_reason="length"),
        case("end of turn instead of the closing tag", f"<tool_call>\n{now}<|im_end|>", [good]),
        case("doubled opening tag", f"<tool_call>\n<tool_call>\n{now}\n</tool_call>", [good]),
        case("doubled closing tag", f"<tool_call>\n{now}\n</tool_call>\n</tool_call>", [good]),
        case("closing tag forgotten before a sibling", f"<tool_call>\n{now}\n<tool_call>\n{now}\n</tool_call>", [good, good]),
        case("arguments before the name", '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>', [("add", {"a": 1})]),
        case("pretty-printed", '<tool_call>\n{\n  "name": "now",\n  "arguments": {\n  }\n}\n</tool_call>', [good]),
        case("duplicate keys: the last counts", '<tool_call>{"name": "add", "arguments": {"a": 1, "a": 2}}</tool_call>', [("add", {"a": 2})]),
        case("escaped surrogate pair", '<tool_call>{"name": "write_file", "arguments": {"content": "\\ud83d\\ude42"}}</tool_call>', [("write_file", {"content": "🙂"})]),
        case("arguments as a string", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', [("add", {"a": 1})], ["type_mismatch"]),
        case("arguments as a list", '<tool_call>{"name": "add", "arguments": [1]}</tool_call>', errors=["bad_structure"]),
        case("arguments as null", '<tool_call>{"name": "add", "arguments": null}</tool_call>', errors=["bad_structure"]),
        case("no arguments key", '<tool_call>{"name": "now"}</tool_call>', errors=["bad_structure"]),
        case("no name", '<tool_call>{"arguments": {"name": "now"}}</tool_call>', errors=["missing_name"]),
        case("blank name", '<tool_call>{"name": " ", "arguments": {}}</tool_call>', errors=["missing_name"]),
        case("single quotes", "<tool_call>{'name': 'now', 'arguments': {}}</tool_call>", errors=["invalid_json"]),
        case("not a number", '<tool_call>{"name": "add", "arguments": {"b": NaN}}</tool_call>', errors=["invalid_json"]),
        case("infinite number", '<tool_call>{"name": "add", "arguments": {"b": 1e999}}</tool_call>', errors=["invalid_json"]),
        case("too deep", '<tool_call>{"name": "add", "arguments": {"items": ' + "[" * 5000 + "]" * 5000 + "}}</tool_call>", errors=["invalid_json"]),
        case("line break in a string", '<tool_call>{"name": "write_file", "arguments": {"content": "a\nb"}}</tool_call>', errors=["invalid_json"]),
        case("an example inside a broken string", f'<tool_call>{{"name": "write_file", "arguments": {{"content": "Like:\n{example}\n"}}}}</tool_call>', errors=["invalid_json"]),
        case("unterminated string before a sibling", f'<tool_call>{{"name": "add", "arguments": {{"a": "x}}}}</tool_call><tool_call>{now}</tool_call>', [good], ["invalid_json"]),
        case("brace missing before a sibling", f'<tool_call>\n{{"name": "add", "arguments": {{"a": 1}}\n</tool_call>\n<tool_call>\n{now}\n</tool_call>', [good], ["invalid_json"]),
        case("brace too many", f"<tool_call>\n{now}}}\n</tool_call>", errors=["bad_structure"]),
        case("two objects in a block", f"<tool_call>\n{now}\n{now}\n</tool_call>", errors=["bad_structure"]),
        case("a name instead of JSON", "<tool_call>\nnow()\n</tool_call>", errors=["bad_structure"]),
        case("tags mentioned in a sentence", "Use <tool_call> and </tool_call> for it.", content="Use <tool_call> and </tool_call> for it."),
        case("text around a call", f"A\n<tool_call>\n{now}\n</tool_call>\nB", [good], content="A\nB"),
        case("closing think tag alone: the prompt opened it", f"Try {example}\n</think>\n\n<tool_call>\n{now}\n</tool_call>", [good], reasoning=f"Try {example}", prefix_reasons=()),
        case("thinking cut off", f"<think>\n{example} and", reasoning=f"{example} and", finish_reason="length"),
        case("hash of the value kept", '<tool_call>{"name": "add", "arguments": {"a": 123456789012345678901234567890}}</tool_call>', [("add", {"a": 123456789012345678901234567890})]),
    ]  # fmt: skip


def qwen3_coder() -> list[Case]:
    def case(name, text, calls=(), errors=(), content=None, **rest):
        return Case("qwen3_coder", name, text, list(calls), list(errors), content, **rest)

    def block(inner, name="write_file"):
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"

    def value(text, key="content"):
        return f"<parameter={key}>\n{text}\n</parameter>\n"

    def wrote(text, **more):
        return ("write_file", {"content": text, **more})

    now = block("", "now")
    good = ("now", {})
    example = block(value("rm -rf /", "cmd"), "bash")
    pair = value("1", "x") + value("2", "y").rstrip("\n")
    typed = "".join(
        value(text, key) for key, text in {"a": "-7", "b": "1e3", "flag": "False", "note": "null"}.items()
    )
    return [
        case("CRLF around a value", "<tool_call>\r\n<function=write_file>\r\n<parameter=content>\r\na\r\nb\r\n</parameter>\r\n</function>\r\n</tool_call>", [wrote("a\r\nb")]),
        case("a value that ends with CR", block(value("a\r")), [wrote("a\r")]),
        case("cut in the opening tag of a parameter", "<tool_call>\n<function=write_file>\n<parame", errors=["unclosed"], finish_reason="length"),
        case("a quoted example", block(value(f"Like:\n{example}\nok") + value("a.md", "path")), [wrote(f"Like:\n{example}\nok", path="a.md")]),
        case("two quoted examples", block(value(f"{example}\n{example}") + value("a.md", "path")) + now, [wrote(f"{example}\n{example}", path="a.md"), good]),
        case("quoted parameters", block(value(pair)), [wrote(pair)]),
        case("an opening tag mentioned in a value", block(value("see <parameter=x> here")) + "\n" + now, [wrote("see <parameter=x> here"), good]),
        case("a closing tag mentioned in a value", block(value("so </parameter> closes")), [wrote("so </parameter> closes")]),
        case("closing tags that could be real", block(value("a</parameter>\n</function>\n</tool_call>\nb")) + "\n" + now, [good], ["bad_structure"]),
        case("a quoted example, cut", block(value(f"Like:\n{example}\nok"))[:-70], errors=["unclosed"], finish_reason="length"),
        case("a quoted example, stopped", block(value(f"Like:\n{example}\nok"))[:-70], errors=["unclosed"]),
        case("cut between parameters", f"<tool_call>\n<function=write_file>\n{value('a.md', 'path')}", errors=["unclosed"], finish_reason="length"),
        case("stopped between parameters", f"<tool_call>\n<function=write_file>\n{value('a.md', 'path')}", errors=["unclosed"]),
        case("cut in the name", "<tool_call>\n<function=write_f", errors=["unclosed"], finish_reason="length"),
        case("stopped at the closing tag", "<tool_call>\n<function=now>\n</function>\n", [good]),
        case("wrapper left out", "<function=now>\n</function>", [good]),
        case("two functions in a wrapper", "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>", [good, good]),
        case("end of the function left out", f"<tool_call>\n<function=write_file>\n{value('x')}</tool_call>", [wrote("x")]),
        case("no newlines", "<tool_call><function=write_file><parameter=content>x</parameter></function></tool_call>", [wrote("x")]),
        case("values typed by schema", block(typed, "add"), [("add", {"a": -7, "b": 1000.0, "flag": False, "note": None})]),
        case("a value that does not fit", block(value("many", "a"), "add"), [("add", {"a": "many"})], ["type_mismatch"]),
        case("a big integer", block(value("9" * 40, "a"), "add"), [("add", {"a": int("9" * 40)})]),
        case("an unknown parameter", block(value("02", "more")), [("write_file", {"more": "02"})]),
        case("a parameter given twice", block(value("x") + value("y")), errors=["bad_structure"]),
        case("a closing tag missing before a sibling", f"<tool_call>\n<function=write_file>\n<parameter=content>\nx\n</function>\n</tool_call>\n{now}", [good], ["bad_structure"]),
        case("a closing tag missing before a parameter", block("<parameter=content>\nx\n" + value("a.md", "path")), errors=["bad_structure"]),
        case("JSON in the block", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', errors=["bad_structure"]),
        case("no name", "<tool_call>\n<function=>\n</function>\n</tool_call>", errors=["missing_name"]),
        case("tags mentioned in a sentence", "Mention of <tool_call> and <function=foo> here", content="Mention of <tool_call> and <function=foo> here"),
    ]  # fmt: skip


def deepseek_v3(family: str) -> list[Case]:
    def case(name, text, calls=(), errors=(), content=None, **rest):
        return Case(family, name, text, list(calls), list(errors), content, **rest)

    fenced = family == "deepseek_v3"
    begin, end = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
    section, section_end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

    def call(name, body):
        head = f"function<｜tool▁sep｜>{name}\n```json\n" if fenced else f"{name}<｜tool▁sep｜>"
        return begin + head + body + ("\n```" if fenced else "") + end

    now, good = call("now", "{}"), ("now", {})
    multi = '{\n  "path": "a",\n  "content": "b"\n}'
    wrote = ("write_file", {"path": "a", "content": "b"})
    return [
        case("multi-line JSON", section + call("write_file", multi) + section_end, [wrote]),
        case("section left out", now, [good]),
        case("section not closed", section + now, [good]),
        case("stopped at the closing marker", section + now.removesuffix(end), [good]),
        case("cut at the closing marker", section + now.removesuffix(end), errors=["unclosed"], finish_reason="length"),
        case("cut in the name", section + begin + ("function<｜tool▁sep｜>no" if fenced else "no"), errors=["unclosed"], finish_reason="length"),
        case("closing marker missing before a sibling", section + call("add", '{"a": ').removesuffix(end) + now + section_end, [good], ["invalid_json"]),
        case("arguments are a list", section + call("add", "[1]") + section_end, errors=["bad_structure"]),
        case("no name", section + call("", "{}") + section_end, errors=["missing_name"]),
        case("an empty section", section + section_end, errors=["bad_structure"]),
        case("section marker mentioned", f"The marker {section} opens.", content=f"The marker {section} opens."),
        case("a fence in a value", section + call("write_file", '{"content": "```\\ncode\\n```"}') + section_end, [("write_file", {"content": "```\ncode\n```"})]),
    ]  # fmt: skip


def dsml(family: str, section: str) -> list[Case]:
    def case(name, text, calls=(), errors=(), content=None, **rest):
        return Case(family, name, text, list(calls), list(errors), content, **rest)

    def call(inner, name="write_file"):
        return f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>\n'

    def value(text, key="content", string=' string="true"'):
        return f'<｜DSML｜parameter name="{key}"{string}>{text}</｜DSML｜parameter>\n'

    def turn(*calls, name=section):
        return f"<｜DSML｜{name}>\n{''.join(calls)}</｜DSML｜{name}>"

    now, good = call("", "now"), ("now", {})
    quoted = turn(call(value("rm -rf /", "cmd"), "bash"))
    return [
        case("a quoted example", turn(call(value(quoted) + value("a", "path"))), [("write_file", {"content": quoted, "path": "a"})]),
        case("newlines kept", turn(call(value("\n x\n"))), [("write_file", {"content": "\n x\n"})]),
        case("JSON value", turn(call(value('{"k": [1]}', "options", ' string="false"'), "add")), [("add", {"options": {"k": [1]}})]),
        case("bad JSON value", turn(call(value("[1", "items", ' string="false"'), "add")), [("add", {"items": "[1"})], ["type_mismatch"]),
        case("no string attribute: typed by schema", turn(call(value("7", "a", ""), "add")), [("add", {"a": 7})]),
        case("another name of the section", turn(now, name="toolcalls"), [good]),
        case("section left out", now, [good]),
        case("cut after the first call", turn(now, call(value("x")))[:-60], [good], ["unclosed"], finish_reason="length"),
        case("no name", turn(call("", "")), errors=["missing_name"]),
        case("a closing tag missing before a sibling", turn(call("x"), now), [good], ["bad_structure"]),
    ]  # fmt: skip


def others() -> list[Case]:
    call = '{"name": "now", "arguments": {}}'
    now = ("now", {})
    return [
        Case("llama3_json", "after the tag", '<|python_tag|>{"name": "now", "parameters": {}}', [now]),
        Case("llama3_json", "semicolons", '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}', [now, now]),
        Case("llama3_json", "a JSON answer", '{"name": "Bob", "tags": [\n{"name": "x", "parameters": {}}]}', content='{"name": "Bob", "tags": [\n{"name": "x", "parameters": {}}]}'),
        Case("llama3_json", "code after the tag", "<|python_tag|>print(1)", errors=["bad_structure"]),
        Case("json", "in a fence", f"```json\n{call}\n```", [now]),
        Case("json", "a fenced answer", '```json\n{"a": 1}\n```', content='```json\n{"a": 1}\n```'),
        Case("pythonic", "a list mentioned", "[f(a=1)] is how to call f", content="[f(a=1)] is how to call f", prefix_reasons=()),
        Case("pythonic", "a Markdown link", "[docs](https://x.org)", content="[docs](https://x.org)"),
        Case("pythonic", "a nested call", "[add(a=eval('1'))]", errors=["bad_structure"]),
        Case("llama4_pythonic", "between markers", "<|python_start|>[now()]<|python_end|>", [now]),
        Case("mistral", "cut in the second call", f"[TOOL_CALLS] [{call}, {call[:20]}", [now], ["unclosed"], finish_reason="length"),
        Case("mistral", "own id", '[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "abcdefghi"}]', [now]),
        Case("mistral_v11", "with an id", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", [now]),
        Case("granite", "hermes-like", f"<tool_call>{call}</tool_call>", [now]),
        Case("kimi_k2", "a bad id", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}<|tool_call_end|>", [now]),
        Case("gpt_oss", "recipient in the role", "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>", [now]),
        Case("gpt_oss", "plain text", "Hello.", content="Hello."),
        Case("gpt_oss", "final", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>", content="Hi.", reasoning="Hm."),
        Case("glm45", "JSON in the block", f"<tool_call>{call}</tool_call>", errors=["bad_structure"]),
        Case("xml", "last tag absent", "<tool_call>\n  <name>now</name>\n  <arguments>\n  </arguments>\n", [now]),
        Case("react", "an answer", "ANSWER: 42", content="42"),
        Case("react", "a raw argument", "TOOL: search(who is (really) there?)", [("search", {"input": "who is (really) there?"})], ["unknown_tool"]),
        Case("functiongemma", "bare numbers", "<start_function_call>call:add{a:3,b:0.5,flag:true}<end_function_call>", [("add", {"a": 3, "b": 0.5, "flag": True})]),
    ]  # fmt: skip


SPECIAL = [
    *hermes(),
    *qwen3_coder(),
    *deepseek_v3("deepseek_v3"),
    *deepseek_v3("deepseek_v31"),
    *dsml("deepseek_v32", "function_calls"),
    *dsml("deepseek_v4", "tool_calls"),
    *others(),
    *HARD,
]
