"""The README shows what is there; CI runs its commands as written."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_its_environment_is_the_quickstart():
    (shown,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert shown == (ROOT / "scripts" / "quickstart.py").read_text()


def test_every_file_it_names_is_there():
    named = re.findall(
        r"(?:scripts|environments|trajectories|rollouts|tests|inference|backends|\.ci)/[\w./]*\w", README
    )
    assert named
    for path in named:
        assert (ROOT / path).exists(), path
