"""Pytest's JUnit report, read as data from a stranger.

The file comes out of a sandbox, so it may hold anything: a document type (the door to entity expansion) ends
the reading, depth and counts are bounded, and a test that is reported twice has its worst outcome, so that a
second, forged entry never mends a failure.

Pytest writes node ids as a dotted class name and a name; only ``-o junit_family=xunit1`` adds the file. With
it ids are exact; without it the capitalised names at the end are taken for classes.
"""

import posixpath
from dataclasses import dataclass, field, replace
from typing import Literal
from xml.parsers import expat

Outcome = Literal["passed", "xfailed", "skipped", "failed", "error"]

WORST_LAST: tuple[Outcome, ...] = ("passed", "xfailed", "skipped", "failed", "error")

MAX_DEPTH = 16
MAX_TESTS = 200_000
MAX_TEXT_CHARS = 4000
"""Kept of each test's message and traceback."""

_OUTCOMES: dict[str, Outcome] = {"failure": "failed", "error": "error", "skipped": "skipped"}


class ReportUnreadable(ValueError):
    """The bytes are no JUnit report, or one that must not be read."""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """How one test went."""

    id: str
    """Pytest's node id, ``path::Class::name``; the path alone where the file could not be collected."""
    outcome: Outcome
    duration_s: float
    message: str = ""
    """One line or a few: the assertion, the exception, the reason of a skip."""
    details: str = ""
    """The traceback, its end where it is long."""


@dataclass(frozen=True, slots=True)
class PytestReport:
    """The tests of one run, by node id, in the order they were reported."""

    cases: dict[str, CaseReport] = field(default_factory=dict)

    def with_outcome(self, *outcomes: Outcome) -> list[str]:
        """Return the ids of tests that ended in one of ``outcomes``."""
        return [case.id for case in self.cases.values() if case.outcome in outcomes]

    def passed(self, test_id: str) -> bool:
        """Tell whether a test ran and did what it should; a test that is not there did not."""
        case = self.cases.get(test_id)
        return case is not None and case.outcome in ("passed", "xfailed")


def read_junit(xml: bytes) -> PytestReport:
    """Read a JUnit report as pytest writes it.

    Raises:
        ReportUnreadable: It is not well-formed, has a document type, or is no report.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.Parse(xml, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise ReportUnreadable(f"no readable JUnit report: {error}") from error
    return PytestReport(reader.cases)


def _refuse_doctype(*_: object) -> None:
    raise ReportUnreadable("it has a document type")


class _Reader:
    """Collects test cases from the parser's events."""

    def __init__(self) -> None:
        self.cases: dict[str, CaseReport] = {}
        self._path: list[str] = []
        self._case: CaseReport | None = None
        self._text = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._path and tag not in ("testsuites", "testsuite"):
            raise ReportUnreadable(f"its root is <{tag}>")
        self._path.append(tag)
        if len(self._path) > MAX_DEPTH:
            raise ReportUnreadable(f"it is nested more than {MAX_DEPTH} deep")
        if tag == "testcase":
            self._case = CaseReport(_node_id(attributes), "passed", _seconds(attributes.get("time", "")))
        elif self._case is not None and self._path[-2] == "testcase" and tag in _OUTCOMES:
            outcome = "xfailed" if attributes.get("type") == "pytest.xfail" else _OUTCOMES[tag]
            message = attributes.get("message", "")[:MAX_TEXT_CHARS]
            self._case = _worse(self._case, replace(self._case, outcome=outcome, message=message))
            self._text = ""

    def text(self, data: str) -> None:
        if self._case is not None and self._path[-1] in _OUTCOMES:
            self._text = (self._text + data)[-MAX_TEXT_CHARS:]

    def end(self, tag: str) -> None:
        self._path.pop()
        if self._case is None:
            return
        if tag in _OUTCOMES:
            self._case = replace(self._case, details=self._text)
        elif tag == "testcase":
            known = self.cases.get(self._case.id)
            self.cases[self._case.id] = _worse(known, self._case) if known else self._case
            self._case = None
            if len(self.cases) > MAX_TESTS:
                raise ReportUnreadable(f"it reports more than {MAX_TESTS} tests")


def _worse(one: CaseReport, other: CaseReport) -> CaseReport:
    return max(one, other, key=lambda case: WORST_LAST.index(case.outcome))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds < float("inf") else 0.0


def _node_id(attributes: dict[str, str]) -> str:
    """Put a node id together again from what pytest makes of it."""
    name, dotted, file = (attributes.get(key, "") for key in ("name", "classname", "file"))
    if not dotted:  # a file that could not be collected
        return file or f"{name.replace('.', '/')}.py"
    module = posixpath.splitext(file)[0].replace("/", ".")
    if file and (dotted == module or dotted.startswith(f"{module}.")):
        classes = dotted[len(module) + 1 :].split(".") if dotted != module else []
        return "::".join([file, *classes, name])
    parts = dotted.split(".")
    modules = len(parts)
    while modules > 1 and parts[modules - 1][:1].isupper():
        modules -= 1
    return "::".join([f"{'/'.join(parts[:modules])}.py", *parts[modules:], name])
