"""A call in a think block that never closed: an error or a call; in a closed one a draft, always."""

import pytest

from tests.tool_call_parsers.spellings import SPELLINGS, TOOLS
from tool_call_parsers import get_parser

WITH_THINK_BLOCKS = sorted(set(SPELLINGS) - {"gpt_oss"})


@pytest.mark.parametrize("family", WITH_THINK_BLOCKS)
def test_it_can_be_accepted_where_nothing_cut_the_text(family):
    spelling = SPELLINGS[family]
    call = spelling.turn([spelling.call("write_file", {"path": "a"})])
    opened = f"{spelling.think[0]}Now:\n{call}"
    accepting = get_parser(family, TOOLS, calls_in_open_reasoning="accept")

    [accepted] = accepting.parse(opened).tool_calls

    assert (accepted.name, accepted.arguments) == ("write_file", {"path": "a"})
    assert not accepting.parse(opened, "length").tool_calls
    assert not accepting.parse(f"{opened}{spelling.think[1]}Hm.").tool_calls
    assert [error.kind for error in get_parser(family, TOOLS).parse(opened).errors] == ["in_reasoning"]
