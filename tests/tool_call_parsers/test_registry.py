"""Which parser is proposed for a model, and by which names parsers go."""

import pytest

from tool_call_parsers import available_parsers, detect, get_parser
from tool_call_parsers.registry import ALIASES, PARSERS

WRITTEN_BY_TEMPLATES = {
    "deepseek_v3": r"'<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + arguments",
    "deepseek_v31": r"'<｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>' + arguments",
    "hermes": r"# Tools\n```json\n...\n```\n {{- '<tool_call>\n{\"name\": \"' }}",
    "llama3_json": r"""{{- 'Respond in the format {"name": function name, "parameters": dictionary of' }}""",
    "pythonic": r"{{- 'Respond in the format [func_name1(params_name1=params_value1...)]' }}",
}
"""How chat templates spell them: line breaks as two characters, markers in strings that are added up."""


@pytest.mark.parametrize("family", WRITTEN_BY_TEMPLATES)
def test_a_template_is_told_by_how_it_spells_the_format(family):
    assert detect(WRITTEN_BY_TEMPLATES[family]) == family


TOLD_OTHERWISE = {
    **dict.fromkeys(["llama3_json", "llama4_pythonic", "pythonic", "json", "react"]),
    **{"glm47": "glm45", "xml": "hermes"},
}
"""Calls without a marker tell nothing; the parser of GLM 4.5 reads 4.7's; ``xml`` has the tags of hermes."""


@pytest.mark.parametrize("family", PARSERS)
def test_a_family_is_told_by_its_own_instructions(family):
    assert detect(get_parser(family).render_tools([])) == TOLD_OTHERWISE.get(family, family)


def test_nothing_is_proposed_for_a_template_without_tools():
    assert detect("{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{% endfor %}") is None


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_a_name_of_its_family(alias):
    assert alias in available_parsers()
    assert type(get_parser(alias)) is PARSERS[ALIASES[alias]]
