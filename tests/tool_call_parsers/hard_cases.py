"""What models really write next to the format, and texts made to fool a parser, one family after the other."""

# ruff: noqa: E501 - a table reads better with one entry a line

from tests.tool_call_parsers.cases import Case
from tests.tool_call_parsers.spellings import SPELLINGS

NOW = ("now", {})


def cases(family: str, *table: tuple) -> list[Case]:
    """Build cases from rows of name, text, calls, error kinds, content and other expectations."""
    return [
        Case(family, name, text, list(calls), list(errors), content, **dict(rest))
        for name, text, calls, errors, content, *rest in (
            (*row[:2], *(row[2:5] + ((), (), None)[len(row) - 2 :]), *row[5:]) for row in table
        )
    ]


def thoughts() -> list[Case]:
    """A closing tag quoted in the thought does not end it: what follows is a draft still."""
    found: list[Case] = []
    for family in ("hermes", "qwen3_coder", "deepseek_v31", "glm45", "kimi_k2", "minimax_m2", "llama3_json"):
        spelling = SPELLINGS[family]
        one = spelling.turn([spelling.call(*NOW)])
        for quote in "\"`'":
            thought = f"The tag {quote}</think>{quote} ends it.\n{one}\n"
            found += [
                Case(
                    family,
                    f"closing think tag in {quote}",
                    f"<think>{thought}</think>\n{one}",
                    [NOW],
                    reasoning=thought.removesuffix("\n"),
                    prefix_reasons=(),
                ),
                Case(
                    family,
                    f"closing think tag in {quote}, the prompt's block",
                    f"{thought}</think>\n{one}",
                    [NOW],
                    reasoning=thought.removesuffix("\n"),
                    reasoning_open=True,
                    prefix_reasons=(),
                ),
            ]
    text = '<think>It ends with "</think>" here.'
    found.append(
        Case(
            "hermes",
            "the only closing think tag is quoted",
            text,
            content='" here.',
            reasoning='It ends with "',
        )
    )
    return found


def quotations() -> list[Case]:
    """A call that a sentence quotes is no call."""
    found: list[Case] = []
    for family in ("hermes", "qwen3_coder", "glm45", "mistral", "mistral_v11"):
        spelling = SPELLINGS[family]
        one = spelling.turn([spelling.call(*NOW)])
        for opening, closing in ('""', "''", "“”"):
            text = f"It is {opening}{one}{closing}."
            found.append(
                Case(family, f"call quoted in {opening}", text, content=text, prefix_reasons=("length",))
            )
    now = SPELLINGS["hermes"].call(*NOW)
    for family, spelling in SPELLINGS.items():
        two = spelling.turn([spelling.call(*NOW), spelling.call(*NOW)])
        if family in ("pythonic", "llama4_pythonic", "llama3_json", "json", "react"):
            continue
        for count, quoted in (("one call", spelling.turn([spelling.call(*NOW)])), ("two calls", two)):
            text = f'The form is "{quoted}".'
            name = f"{count} quoted in the family's own form"
            found.append(Case(family, name, text, content=text, prefix_reasons=()))
    thought = 'The answer is "4"'
    tags = ("write_file", {"content": "s/<think>//;s/</think>//"})
    return [
        *found,
        *cases(
            "hermes",
            ("a quotation mark before a call", f'He said: "{now}', [NOW], [], 'He said: "'),
            ("a call between two quotations", f'Run "ls"{now}"ls" lists files', [NOW], [], 'Run "ls""ls" lists files'),
            ("a quoted sentence before a call", f'"Run (ls)."{now}"It lists files"', [NOW], [], '"Run (ls).""It lists files"'),
            ("a quotation ends the thought and begins the answer", f'<think>{thought}</think>"4" it is.\n{SPELLINGS["hermes"].call(*tags)}', [tags], [], '"4" it is.', ("reasoning", thought)),
            ("call quoted after Chinese", f'格式是"{now}"。', [], [], f'格式是"{now}"。', ("prefix_reasons", ("length",))),
        ),
        Case("mistral_v11", "a quotation before a call, then the limit", 'Let me run "ls"[TOOL_CALLS]now[ARGS]{}', [NOW], content='Let me run "ls"', finish_reason="length"),
    ]  # fmt: skip


def hermes() -> list[Case]:
    now = '{"name": "now", "arguments": {}}'
    block = f"<tool_call>\n{now}\n</tool_call>"
    return cases(
        "hermes",
        ("text between parallel calls", f"A\n{block}\nThen B\n{block}\nC", [NOW, NOW], [], "A\nThen B\nC"),
        ("Python literals", '<tool_call>\n{"name": "add", "arguments": {"flag": True, "note": None}}\n</tool_call>', [], ["invalid_json"]),
        ("comment in the JSON", '<tool_call>\n{"name": "now", // c\n"arguments": {}}\n</tool_call>', [], ["invalid_json"]),
        ("list in the block", f"<tool_call>\n[{now}]\n</tool_call>", [], ["bad_structure"]),
        ("OpenAI's wrapper", f'<tool_call>\n{{"type": "function", "function": {now}}}\n</tool_call>', [], ["missing_name"]),
        ("name that is a number", '<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>', [], ["missing_name"]),
        ("arguments an empty string", '<tool_call>\n{"name": "now", "arguments": ""}\n</tool_call>', [], ["bad_structure"]),
        ("arguments encoded twice", '<tool_call>\n{"name": "now", "arguments": "\\"{}\\""}\n</tool_call>', [], ["bad_structure"]),
        ("empty block before a call", f"<tool_call>\n</tool_call>\n{block}", [NOW], ["bad_structure"]),
        ("an invented result follows", f"{block}\n<tool_response>\n1\n</tool_response>\nDone", [NOW], [], "<tool_response>\n1\n</tool_response>\nDone"),
        ("opening tag for a closing one", f"<tool_call>\n{now}\n<tool_call>", [NOW], ["unclosed"]),
        ("text in place of the closing tag", f"<tool_call>\n{now}\nDone.", [], ["bad_structure"]),
        ("a fence that never closed before a call", f"```python\nx=1\n{block}", [NOW], [], "```python\nx=1", ("prefix_reasons", ())),
        ("CRLF everywhere", f"Well.\n{block}\nDone".replace("\n", "\r\n"), [NOW], [], "Well.\r\nDone"),
        ("CRLF around a thought", f"<think>\n a\nb \n</think>\n\nWell.\n{block}".replace("\n", "\r\n"), [NOW], [], "Well.", ("reasoning", " a\r\nb ")),
        ("CR at the ends of a thought", "<think>\ra\r</think>Ok", [], [], "Ok", ("reasoning", "\ra\r")),
        ("a fence right after a thought", f"<think>Hm.</think>```\n{block}\n```", [], [], f"```\n{block}\n```", ("reasoning", "Hm."), ("prefix_reasons", ("length",))),
        ("closing tag in a string of several lines", '<tool_call>\n{"name": "write_file", "arguments": {"content": "\n</tool_call>\n"}}\n</tool_call>\nOk', [], ["invalid_json"], "Ok"),
        ("closing tag in single quotes", f"<tool_call>\n{{'name': 'write_file', 'arguments': {{'content': '</tool_call>'}}}}\n</tool_call>\n{block}", [NOW], ["invalid_json"]),
        ("floats that look like integers", '<tool_call>\n{"name": "add", "arguments": {"a": 1e5, "b": -0.0}}\n</tool_call>', [("add", {"a": 1e5, "b": -0.0})]),
    )  # fmt: skip


def qwen3_coder() -> list[Case]:
    def call(*values: tuple[str, str], name="write_file"):
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"

    def wrote(text):
        return [("write_file", {"content": text})]

    return cases(
        "qwen3_coder",
        ("closing tag of the block in a value", call(("content", "x </tool_call> y")), wrote("x </tool_call> y")),
        ("closing tag of the function in a value", call(("content", "x\n</function>\ny")), wrote("x\n</function>\ny")),
        ("closing tag at the end of a value", call(("content", "print('</parameter>')")), wrote("print('</parameter>')")),
        ("blank lines around a value", call(("content", "\n\na\n\n")), wrote("\n\na\n\n")),
        ("nothing but a newline", "<tool_call>\n<function=write_file>\n<parameter=content>\n\n</parameter>\n</function>\n</tool_call>", wrote("")),
        ("spaces in the tags", "<tool_call>\n<function= write_file >\n<parameter= path >\na\n</parameter>\n</function>\n</tool_call>", [("write_file", {"path": "a"})]),
        ("tag of a parameter not closed", "<tool_call>\n<function=write_file>\n<parameter=path\na\n</parameter>\n</function>\n</tool_call>", [], ["bad_structure"]),
        ("a number that is none", call(("a", "1.5"), name="add"), [("add", {"a": "1.5"})], ["type_mismatch"]),
        ("an integer written as a float", call(("a", "1.0"), ("b", "2"), name="add"), [("add", {"a": 1, "b": 2})]),
        ("a Python dictionary", call(("options", "{'a': 1}"), name="add"), [("add", {"options": "{'a': 1}"})], ["type_mismatch"]),
        ("words for a string", call(("zip", "null"), ("note", "None"), name="add"), [("add", {"zip": "null", "note": "None"})]),
        ("a parameter after the function", "<tool_call>\n<function=write_file>\n</function>\n<parameter=path>\na\n</parameter>\n</tool_call>", [], ["bad_structure"]),
        ("a closing tag mentioned after a call", f"{call(name='now')}\nThe tag </parameter> closes.", [NOW], [], "The tag </parameter> closes."),
        ("a closing tag that may be real after a call", f"{call(name='now')}\nThe tag is </parameter>", [], ["bad_structure"]),
        ("a closing tag mentioned after a call, cut", f"{call(name='now')}\nThe tag </parameter> closes", [], ["bad_structure"], None, ("finish_reason", "length")),
        ("text in the function", "<tool_call>\n<function=write_file>\nWords\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>", [], ["bad_structure"]),
        ("text between parallel calls", f"{call(name='now')}\nand\n{call(name='now')}", [NOW, NOW], [], "and"),
    )  # fmt: skip


def deepseek() -> list[Case]:
    begin, end, sep = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
    section, section_end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

    def fenced(name, body):
        return f"{begin}function{sep}{name}\n```json\n{body}\n```{end}"

    def bare(name, body):
        return f"{begin}{name}{sep}{body}{end}"

    quoted = fenced("now", "{}").replace("\n", "\\n")
    now = fenced("now", "{}")
    invented = "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>1<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    return [
        *cases(
            "deepseek_v3",
            ("two sections with text between", f"{section}{now}{section_end}text\n{section}{now}{section_end}", [NOW, NOW], [], "text\n"),
            ("no fence", f"{section}{begin}function{sep}now\n{{}}{end}{section_end}", [NOW]),
            ("fence without its language", f"{section}{begin}function{sep}now\n```\n{{}}\n```{end}{section_end}", [NOW]),
            ("closing fence missing", f"{section}{begin}function{sep}now\n```json\n{{}}\n{end}{section_end}", [NOW]),
            ("a whole call in a value", section + fenced("write_file", f'{{"content": "{quoted}"}}') + section_end, [("write_file", {"content": now})]),
            ("the newer syntax", f"{section}{bare('now', '{}')}{section_end}", [], ["missing_name"]),
            ("text after the JSON", f"{section}{fenced('now', '{} // done')}{section_end}", [], ["bad_structure"]),
            ("invented outputs follow", f"{section}{now}{section_end}{invented}", [NOW], [], invented),
        ),
        *cases(
            "deepseek_v31",
            ("newlines around the arguments", f"{section}{begin}now{sep}\n{{}}\n{end}{section_end}", [NOW]),
            ("spaces around the name", f"{section}{begin} now {sep}{{}}{end}{section_end}", [NOW]),
            ("separator missing", f"{section}{begin}now{{}}{end}{section_end}", [], ["bad_structure"]),
            ("arguments missing", f"{section}{begin}now{sep}{end}{section_end}", [], ["bad_structure"]),
            ("the older syntax", f"{section}{now}{section_end}", [], ["bad_structure"]),
            ("a think block the prompt opened, empty", f"</think>{section}{bare('now', '{}')}{section_end}", [NOW], [], None, ("reasoning", ""), ("reasoning_open", True)),
        ),
    ]  # fmt: skip


def dsml() -> list[Case]:
    def turn(inner):
        return f"<｜DSML｜function_calls>\n{inner}\n</｜DSML｜function_calls>"

    def invoke(inner="", name="write_file"):
        return f'<｜DSML｜invoke name="{name}">\n{inner}\n</｜DSML｜invoke>'

    def value(text, key="content", string="true"):
        return f'<｜DSML｜parameter name="{key}" string="{string}">{text}</｜DSML｜parameter>'

    now = turn(invoke(name="now"))
    closers = "</parameter></invoke></｜DSML｜invoke>"
    return cases(
        "deepseek_v32",
        ("an empty line before the section belongs to it", f"Well.\n\n{now}", [NOW], [], "Well."),
        ("and in an empty call", now, [NOW]),
        ("closing tags in a value", turn(invoke(value(closers))), [("write_file", {"content": closers})]),
        ("no blanks at all", turn(invoke(value("a", "path"))).replace("\n", ""), [("write_file", {"path": "a"})]),
        ("attributes the other way round", turn(invoke('<｜DSML｜parameter string="true" name="path">a</｜DSML｜parameter>')), [("write_file", {"path": "a"})]),
        ("attributes in single quotes", turn("<｜DSML｜invoke name='now'>\n</｜DSML｜invoke>"), [NOW]),
        ("the attribute decides, not the look", turn(invoke(value("5", "zip") + value("5", "a", "false"), "add")), [("add", {"zip": "5", "a": 5})]),
        ("the attribute in capitals", turn(invoke(value("5", "zip", "True") + value("5", "a", "FALSE"), "add")), [("add", {"zip": "5", "a": 5})]),
        ("another word in the attribute: typed by schema", turn(invoke(value("5", "zip", "yes") + value("5", "a", "no"), "add")), [("add", {"zip": "5", "a": 5})]),
        ("text marked as JSON", turn(invoke(value("hello", "path", "false"))), [("write_file", {"path": "hello"})], ["type_mismatch"]),
        ("closing tag without its prefix", turn(invoke('<｜DSML｜parameter name="path" string="true">a</parameter>')), [], ["bad_structure"]),
        ("two sections", f"{now}\nand\n{now}", [NOW, NOW], [], "and"),
    )  # fmt: skip


def glm45() -> list[Case]:
    def pair(key, value):
        return f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"

    def call(name, *pairs):
        return f"<tool_call>{name}\n{''.join(pairs)}</tool_call>"

    tags = "<arg_key>q</arg_key><arg_value>z</arg_value>"
    return cases(
        "glm45",
        ("newline before the name", "<tool_call>\nnow\n</tool_call>", [NOW]),
        ("nothing between calls", call("now") + call("now"), [NOW, NOW]),
        ("call in the same line as text", f"Sure.{call('now')}", [NOW], [], "Sure."),
        ("tags of a pair in a value", call("write_file", pair("content", tags), pair("path", "p")), [("write_file", {"content": tags, "path": "p"})]),
        ("a call in a value", call("write_file", pair("content", call("now"))), [("write_file", {"content": call("now")})]),
        ("JSON for a string", call("write_file", pair("content", '{"a": 1}')), [("write_file", {"content": '{"a": 1}'})]),
        ("values of an unknown tool stay text", call("foo", pair("x", "5")), [("foo", {"x": "5"})], ["unknown_tool"]),
        ("closing tag of a value missing", "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a\n" + pair("content", "b") + "</tool_call>", [], ["bad_structure"]),
        ("a key given twice", call("write_file", pair("path", "x"), pair("path", "y")), [], ["bad_structure"]),
        ("an empty key", call("write_file", pair("", "x")), [], ["missing_name"]),
        ("tags mentioned in a sentence", "I use <tool_call> tags and </tool_call>.", [], [], "I use <tool_call> tags and </tool_call>."),
    )  # fmt: skip


def kimi_k2() -> list[Case]:
    def call(call_id, body="{}"):
        return f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{body}<|tool_call_end|>"

    def turn(*calls, name="tool_calls_section"):
        return f"<|{name}_begin|>{''.join(calls)}<|{name}_end|>"

    markers = "<|tool_call_end|><|tool_calls_section_end|>"
    return cases(
        "kimi_k2",
        ("section in the singular", turn(call("functions.now:0"), name="tool_call_section"), [NOW]),
        ("blanks everywhere", turn(f" {call(' functions.now:0 ', ' {} ')} "), [NOW]),
        ("dotted name", turn(call("functions.mcp.now:0")), [("mcp.now", {})], ["unknown_tool"]),
        ("id of another maker", turn(call("call_abc")), [("call_abc", {})], ["unknown_tool"]),
        ("id without a name", turn(call("functions.:0")), [], ["missing_name"]),
        ("the same id twice", turn(call("functions.now:0"), call("functions.now:0")), [NOW, NOW]),
        ("markers in a value", turn(call("functions.write_file:0", f'{{"content": "{markers}"}}')), [("write_file", {"content": markers})]),
        ("arguments missing", turn("<|tool_call_begin|>functions.now:0<|tool_call_end|>"), [], ["bad_structure"]),
        ("empty arguments", turn(call("functions.now:0", "")), [], ["bad_structure"]),
        ("text after a section that never closed", f"<|tool_calls_section_begin|>{call('functions.now:0')}Ok", [NOW], [], "Ok"),
    )  # fmt: skip


def mistral() -> list[Case]:
    now = '{"name": "now", "arguments": {}}'
    text = "[x] ] }, {"
    return [
        *cases(
            "mistral",
            ("no blank after the marker", f"[TOOL_CALLS][{now}]</s>", [NOW]),
            ("content in the same line", f"Sure![TOOL_CALLS][{now}]", [NOW], [], "Sure!"),
            ("brackets in a string", f'[TOOL_CALLS][{{"name": "write_file", "arguments": {{"content": "{text}"}}}}, {now}]', [("write_file", {"content": text}), NOW]),
            ("arguments as a string", '[TOOL_CALLS][{"name": "add", "arguments": "{\\"a\\": 1}"}]', [("add", {"a": 1})], ["type_mismatch"]),
            ("closing bracket missing", f"[TOOL_CALLS][{now}", [NOW]),
            ("the newer syntax", "[TOOL_CALLS]now[ARGS]{}", [], ["bad_structure"]),
            ("a list as an element", f"[TOOL_CALLS][[{now}], {now}]", [NOW], ["bad_structure"]),
            ("text after the list", f"[TOOL_CALLS][{now}]\nDone", [NOW], [], "Done"),
        ),
        *cases(
            "mistral_v11",
            ("marker of the arguments taken off", "[TOOL_CALLS]now{}", [NOW]),
            ("taken off after an id", "[TOOL_CALLS]now[CALL_ID]abcdefghi{}", [NOW]),
            ("taken off before a blank", "[TOOL_CALLS]now {}", [], ["bad_structure"]),
            ("the marker mentioned before a brace", "The marker [TOOL_CALLS] and then {}.", [], [], "The marker [TOOL_CALLS] and then {}."),
            ("the markers of a call mentioned", "Write [TOOL_CALLS]name[ARGS] and then JSON.", [], [], "Write [TOOL_CALLS]name[ARGS] and then JSON."),
            ("arguments as a string after text", 'Ok[TOOL_CALLS]now[ARGS]"{}"', [], ["bad_structure"], "Ok"),
            ("cut in the head of a second call", "Ok[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]no", [NOW], ["unclosed"], "Ok", ("finish_reason", "length")),
            ("the older syntax", f"[TOOL_CALLS][{now}]", [], ["bad_structure"]),
            ("text after a call", "[TOOL_CALLS]now[ARGS]{} and more", [NOW], [], " and more"),
            ("JSON over several lines", '[TOOL_CALLS]add[ARGS]{\n  "a": 1\n}', [("add", {"a": 1})]),
            ("draft in a thought", "[THINK]hm [TOOL_CALLS]now[ARGS]{}[/THINK]ok[TOOL_CALLS]now[ARGS]{}", [NOW], [], "ok", ("reasoning", "hm [TOOL_CALLS]now[ARGS]{}")),
        ),
    ]  # fmt: skip


def llama3_json() -> list[Case]:
    now = '{"name": "now", "parameters": {}}'
    text = '; {\\"name\\": 1}'
    return cases(
        "llama3_json",
        ("tag in the same line as text", f"ok <|python_tag|>{now}", [NOW], [], "ok "),
        ("parted by a comma", f"{now}, {now}", [NOW, NOW]),
        ("a comma in the sentence after", f"{now}, that is it", [NOW], [], ", that is it"),
        ("separator in a string", f'{{"name": "write_file", "parameters": {{"content": "{text}"}}}}; {now}', [("write_file", {"content": '; {"name": 1}'}), NOW]),
        ("call in the midst of a line", f"Sure: {now}", [], [], f"Sure: {now}"),
        ("call on a line after text", f"Sure:\n{now}", [NOW], [], "Sure:"),
        ("type beside the name", '{"type": "function", "name": "now", "parameters": {}}', [NOW]),
        ("parameters are null", '{"name": "now", "parameters": null}', [], ["bad_structure"]),
        ("parameters as a string", '{"name": "add", "parameters": "{\\"a\\": 1}"}', [("add", {"a": 1})], ["type_mismatch"]),
        ("Python literals", '{"name": "add", "parameters": {"flag": True}}', [], ["invalid_json"]),
        ("a Python dictionary", "{'name': 'now', 'parameters': {}}", [], ["invalid_json"]),
        ("an answer that is a Python dictionary", "{'name': 'Bob', 'age': None}", [], [], "{'name': 'Bob', 'age': None}"),
        ("an answer that is no JSON", '{"name": "Bob", "age": NaN}', [], [], '{"name": "Bob", "age": NaN}'),
    )  # fmt: skip


def gpt_oss() -> list[Case]:
    def call(header="commentary to=functions.now <|constrain|>json", body="{}", end="<|call|>"):
        return f"<|channel|>{header}<|message|>{body}{end}"

    markers = "<|end|><|start|>assistant<|channel|>final<|message|>x"
    return cases(
        "gpt_oss",
        ("recipient after the role of the prompt", " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", [NOW]),
        ("that recipient alone is prose", " to=functions.now", [], [], " to=functions.now"),
        ("call in the analysis channel", call("analysis to=functions.now <|constrain|>json"), [NOW]),
        ("no constraint", call("commentary to=functions.now"), [NOW]),
        ("constraint without its marker", call("commentary to=functions.now code"), [NOW]),
        ("no blank before the constraint", call("commentary to=functions.now<|constrain|>json"), [NOW]),
        ("channel said twice", call("commentary to=functions.now <|channel|>commentary json"), [NOW]),
        ("dash in a name", call("commentary to=functions.my-tool <|constrain|>json"), [("my-tool", {})], ["unknown_tool"]),
        ("code for a built-in tool", call("analysis to=python code", "print(1)"), [], ["bad_structure"]),
        ("marker of the body missing", "<|channel|>commentary to=functions.now <|constrain|>json{}<|call|>", [], ["bad_structure"]),
        ("markers in a value", call("commentary to=functions.write_file <|constrain|>json", f'{{"content": "{markers}"}}'), [("write_file", {"content": markers})]),
        ("ended as a text is", call(end="<|end|>"), [NOW]),
        ("ended by the next message", call(end="<|start|>assistant") + call(), [NOW, NOW]),
        ("an empty body", call(body=""), [], ["bad_structure"]),
        ("recipient without a name", call("commentary to=functions. <|constrain|>json"), [], ["missing_name"]),
        ("no recipient after to=", call("commentary to= <|constrain|>json"), [], ["missing_name"]),
        ("markers and a recipient mentioned", "I use <|channel|> a lot. to=me and then <|call|> here", [], [], "I use <|channel|> a lot. to=me and then <|call|> here"),
        ("two answers", "<|channel|>final<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Bye<|return|>", [], [], "Hi\nBye"),
    )  # fmt: skip


def minimax_m2() -> list[Case]:
    def turn(inner):
        return f"<minimax:tool_call>\n{inner}\n</minimax:tool_call>"

    def call(*values: tuple[str, str], name="write_file"):
        inner = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values)
        return f'<invoke name="{name}">\n{inner}</invoke>'

    typed = {"a": "5", "b": "1.5", "flag": "true", "items": "[1]", "note": "null", "zip": "02139"}
    values = {"a": 5, "b": 1.5, "flag": True, "items": [1], "note": None, "zip": "02139"}
    return cases(
        "minimax_m2",
        ("types by schema", turn(call(*typed.items(), name="add")), [("add", values)]),
        ("a tag in a value", turn(call(("content", '<parameter name="x">1</parameter>'))), [("write_file", {"content": '<parameter name="x">1</parameter>'})]),
        ("newlines of a value stay", turn(call(("content", "\nx\n"))), [("write_file", {"content": "\nx\n"})]),
        ("two calls", turn(call(name="now") + "\n" + call(name="now")), [NOW, NOW]),
        ("name without quotation marks", turn("<invoke name=now>\n</invoke>"), [NOW]),
        ("JSON for the parameters", turn('<invoke name="add">\n{"a": 1}\n</invoke>'), [], ["bad_structure"]),
        ("tag in a sentence", 'The tag <invoke name="now"></invoke> does it.', [], [], 'The tag <invoke name="now"></invoke> does it.'),
    )  # fmt: skip


def pythonic() -> list[Case]:
    def wrote(literal, text, name):
        return (name, f"[write_file(content={literal})]", [("write_file", {"content": text})])

    return cases(
        "pythonic",
        wrote('"""a\n"b" \'c\'\n"""', "a\n\"b\" 'c'\n", "string between three quotes"),
        wrote("'''it''s\\''''", "it''s'", "quotes in a string between three"),
        wrote('"a" \'b\'', "ab", "strings in a row are one"),
        wrote("('a')", "a", "value in parentheses"),
        wrote("'])('", "])(", "brackets in a string"),
        wrote(r"'it\'s \x41 \u00e9 \\ \d \/ \8'", "it's A é \\ \\d \\/ \\8", "escapes"),
        wrote(r"'\033[31m\12\0\1234'", "\x1b[31m\n\0S4", "octal escapes"),
        ("empty strings", "[write_file(path='', content=\"\")]", [("write_file", {"path": "", "content": ""})]),
        ("tuples are lists", "[add(items=(1, (2,), ()))]", [("add", {"items": [1, [2], []]})]),
        ("Python's integers", "[add(a=1_000, b=-0x1F)]", [("add", {"a": 1000, "b": -31})]),
        ("over several lines", "[\n  now(),\n  add(a=1,),\n]", [NOW, ("add", {"a": 1})]),
        ("JSON's words", "[add(flag=true, note=null)]", [("add", {"flag": True, "note": None})]),
        ("more digits than Python converts", f"[add(a={'9' * 5000}_0)]", [], ["bad_structure"]),
        ("a sum is no literal", "[add(a=1+2)]", [], ["bad_structure"]),
        ("an f-string is no literal", "[write_file(content=f'{x}')]", [], ["bad_structure"]),
        ("unpacking is no literal", "[add(**{'a': 1})]", [], ["bad_structure"]),
        ("the wrong closing bracket", "[now(]", [], ["bad_structure"]),
        ("the wrong one after a good call", "[now(), add(a=1]", [NOW], ["bad_structure"]),
        ("an argument given twice", "[add(a=1, a=2)]", [], ["bad_structure"]),
        ("three quotes that never close", "[write_file(content='''x)]", [], ["unclosed"]),
        ("a string of several lines between good calls", "[now(), write_file(content='a\n[b]\n'), now()]", [NOW, NOW], ["bad_structure"]),
        ("the same, never closed", "[now(), write_file(content='a\n), now()]", [NOW], ["bad_structure"]),
        ("task list", "[x] done\n[ ] open", [], [], "[x] done\n[ ] open"),
    )  # fmt: skip


def olmo3() -> list[Case]:
    def turn(text):
        return f"<function_calls>\n{text}\n</function_calls>"

    return cases(
        "olmo3",
        ("JSON's escaped slash", turn(r'write_file(path="http:\/\/x")'), [("write_file", {"path": "http://x"})]),
    )  # fmt: skip


def lists() -> list[Case]:
    """An element of a list that is no call leaves its siblings alone."""
    now = '{"name": "now", "arguments": {}}'
    bad = {
        "not a number": '{"name": "add", "arguments": {"b": NaN}}',
        "Python's words": '{"name": "add", "arguments": {"flag": True, "note": None}}',
        "single quotes": "{'name': 'add', 'arguments': {'zip': '}]'}}",
        "a string of several lines": '{"name": "write_file", "arguments": {"content": "a\n]b\n"}}',
    }
    found: list[Case] = []
    for family, marker in (
        ("mistral", "[TOOL_CALLS]"),
        ("granite", "<|tool_call|>"),
        ("phi4_mini", "functools"),
        ("hunyuan_a13b", "<tool_calls>"),
    ):
        rows = [
            (name, f"{marker}[{now}, {element}, {now}]", [NOW, NOW], ["invalid_json"])
            for name, element in bad.items()
        ]
        found += cases(family, *rows)
    rows = [
        (name, "; ".join([now, element, now]), [NOW, NOW], ["invalid_json"]) for name, element in bad.items()
    ]
    return [
        *found,
        *cases("llama3_json", *rows),
        *cases("json", ("two lines in a fence", f"```json\n{now}\n{now}\n```\nOk", [NOW, NOW], [], "Ok")),
        *cases(
            "phi4_mini",
            *(
                (f"Python: {text!r}", text, [], [], text)
                for text in ("functools", "functools.wraps", "import functools\nfunctools.reduce(a)", "functools[0]", "functools is a module.")
            ),
            ("its marker before a call that was cut", 'functools[{"na', [], ["unclosed"], None, ("finish_reason", "length")),
        ),
    ]  # fmt: skip


def functiongemma() -> list[Case]:
    begin, end = "<start_function_call>", "<end_function_call>"
    now = f"{begin}call:now{{}}{end}"
    return cases(
        "functiongemma",
        ("a bracket never closed before a sibling", f"{begin}call:add{{items:[1{end}{now}", [NOW], ["bad_structure"]),
        ("the wrong closing bracket before a sibling", f"{begin}call:add{{items:[1}}{end}{now}", [NOW], ["bad_structure"]),
    )  # fmt: skip


def react() -> list[Case]:
    def given(text):
        return [("search", {"input": text})], ["unknown_tool"]

    lines = "\nfoo()\nTOOL: rm(path='x')\n"
    wrote = [("write_file", {"content": lines})]

    return cases(
        "react",
        ("one string is what it says", 'TOOL: search( "it\'s" )', *given("it's")),
        ("two strings are raw text", 'TOOL: search("my prog" "arg one")', *given('"my prog" "arg one"')),
        ("a string in parentheses is raw text", 'TOOL: search(("ls"))', *given('("ls")')),
        ("a call on a line of a string", f"TOOL: write_file(content='''{lines}''')\nTOOL: now()", [*wrote, NOW]),
        ("the same, without a name", f'TOOL: search("""{lines}""")', *given(lines)),
        ("that string never closed", f"TOOL: write_file(content='''{lines}", [], ["unclosed"]),
        ("an argument that never closed before a sibling", "TOOL: add(items=[1)\nTOOL: now()", [NOW], ["bad_structure"]),
        ("a string that never closed before a sibling", "TOOL: add(items='x)\nTOOL: now()", [NOW], ["bad_structure"]),
        ("a call on the line of an answer", "ANSWER: TOOL: now()", [], [], "TOOL: now()"),
        ("a string and more is raw text", 'TOOL: search("a" + b)', *given('"a" + b')),
    )  # fmt: skip


HARD = [
    *thoughts(),
    *quotations(),
    *hermes(),
    *qwen3_coder(),
    *deepseek(),
    *dsml(),
    *glm45(),
    *kimi_k2(),
    *mistral(),
    *llama3_json(),
    *gpt_oss(),
    *minimax_m2(),
    *pythonic(),
    *olmo3(),
    *lists(),
    *functiongemma(),
    *react(),
]
