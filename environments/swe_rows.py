"""Repository tasks as rows in SWE-bench's form (Jimenez et al. 2023, arXiv:2310.06770), and those shipped."""

import json
import posixpath
import re
from importlib.resources import files
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from backends.resources import Resources
from environments.items import TaskItem
from environments.pytest_verdict import file_of_test
from trajectories.errors import ConfigError

CONFIGURATION = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("tox.ini", "setup.cfg", "pyproject.toml"),
)
"""Names of files that tell pytest what to do."""


def _from_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


TestIds = Annotated[list[str], BeforeValidator(_from_json)]
"""Pytest node ids; as SWE-bench has them also a list in JSON."""


class SweItem(BaseModel):
    """One task. Of ``files``, ``image`` and ``repo`` with ``base_commit`` one must say where the code is."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    instance_id: str
    problem_statement: str
    FAIL_TO_PASS: TestIds = Field(min_length=1)
    """Tests that the right change makes pass."""
    PASS_TO_PASS: TestIds = Field(default_factory=list)
    """Tests that passed before and must not break."""
    test_patch: str = ""
    """Diff that adds the judge's tests."""
    patch: str = ""
    """Diff of a solution; never shown to the agent."""
    repo: str | None = None
    """``OWNER/NAME``."""
    base_commit: str | None = Field(default=None, pattern=r"^\w[\w./-]*$")
    files: dict[str, str] | None = None
    """Path to content of the whole repository."""
    image: str | None = None
    """Image or rootfs that holds the repository as its workspace."""
    resources: Resources | None = None
    """What the task's sandbox may use."""
    import_paths: list[str] = Field(default_factory=list)
    """Folders beside the root that tests import from."""

    @field_validator("FAIL_TO_PASS", "PASS_TO_PASS")
    @classmethod
    def _are_node_ids(cls, tests: list[str]) -> list[str]:
        try:
            for test in tests:
                file_of_test(test)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return tests

    @field_validator("files")
    @classmethod
    def _are_inside(cls, files: dict[str, str] | None) -> dict[str, str] | None:
        for path in files or ():
            if path != posixpath.normpath(path) or path.startswith(("/", "../")):
                raise ValueError(f"{path!r} is no path inside the repository")
        return files

    @property
    def judges_own(self) -> list[str]:
        """Patterns of the files the judge brings: tests, the folders they are in, and pytest's settings."""
        touched = re.findall(r"^(?:\+\+\+ b|--- a)/(.+)$", self.test_patch, re.MULTILINE)
        tested = map(file_of_test, self.FAIL_TO_PASS + self.PASS_TO_PASS)
        return [*CONFIGURATION, *sorted({_test_folder(path) for path in (*tested, *touched)})]


def _test_folder(path: str) -> str:
    """Return the outermost folder of a path that is named for tests, or the path itself where none is."""
    parts = path.split("/")
    depth = next((depth for depth, part in enumerate(parts[:-1], 1) if part in ("test", "tests")), None)
    return "./" + "/".join(parts[:depth])


def shipped_tasks() -> list[TaskItem]:
    """Return the tasks that come with the project, in order of their names."""
    folder = files("environments") / "swe_tasks"
    paths = sorted(
        (path for path in folder.iterdir() if path.name.endswith(".yaml")), key=lambda path: path.name
    )
    return [{"id": path.name.removesuffix(".yaml"), **yaml.safe_load(path.read_text())} for path in paths]
