"""The pages about toolsets say what the schemas say; the policy in the manual is one that loads."""

import re

import yaml

from environments.config import EnvConfig
from scripts.document_toolsets import FOLDER, pages


def test_the_pages_are_current():
    written = {path.name: path.read_text() for path in FOLDER.glob("*.md") if path.name != "policy.md"}
    assert written == pages(), "run: python scripts/document_toolsets.py"


def test_the_policy_in_the_manual_loads():
    (block,) = re.findall(r"```yaml\n(.*?)```", (FOLDER / "policy.md").read_text(), re.DOTALL)
    assert EnvConfig(policy=yaml.safe_load(block)).policy.max_tool_turns == 30
