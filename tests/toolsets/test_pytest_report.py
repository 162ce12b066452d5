"""Pytest's report: ids as pytest writes them, outcomes at their worst, nothing hostile believed.

The golden files are pytest 9 reports of one set of tests, in both of its JUnit families.
"""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsets.pytest_report import MAX_TEXT_CHARS, PytestReport, ReportUnreadable, read_junit

EXPECTED = {
    "tests/test_broken.py": "error",
    "tests/Sub/test_s.py::test_s": "passed",
    "tests/test_a.py::TestC::test_inherited": "passed",
    "tests/test_a.py::TestC::TestInner::test_deep": "failed",
    "tests/test_a.py::TestC::test_p[a.b::c]": "passed",
    "tests/test_a.py::TestC::test_p[[q]]": "passed",
    r"tests/test_a.py::TestC::test_p[\xe9]": "passed",
    r"tests/test_a.py::TestC::test_p[\x1b]": "passed",
    "tests/test_a.py::TestC::test_p[a/b]": "passed",
    "tests/test_a.py::test_ok": "passed",
    "tests/test_a.py::test_x": "xfailed",
    "tests/test_a.py::test_xs": "failed",
    "tests/test_a.py::test_s": "skipped",
    "tests/test_a.py::test_e": "error",
    "tests/test_a.py::test_both": "error",
}


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
def test_a_real_report_has_pytests_own_ids(family):
    report = read_junit((Path(__file__).parent / "junit" / f"{family}.xml").read_bytes())
    assert {case.id: case.outcome for case in report.cases.values()} == EXPECTED
    deep = report.cases["tests/test_a.py::TestC::TestInner::test_deep"]
    assert deep.message == "AssertionError: no & <way>\nassert 1 == 2"
    assert "tests/test_a.py:6: AssertionError" in deep.details
    assert deep.duration_s > 0


def suite(*cases: str) -> bytes:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>".encode()


PASSED = '<testcase classname="test_a" name="test_x" time="1"/>'
FAILED = '<testcase classname="test_a" name="test_x"><failure message="no">trace</failure></testcase>'


@pytest.mark.parametrize("cases", [(PASSED, FAILED), (FAILED, PASSED), (PASSED, FAILED, PASSED)])
def test_a_second_entry_never_mends_a_failure(cases):
    report = read_junit(suite(*cases))
    assert report.cases["test_a.py::test_x"].outcome == "failed"
    assert not report.passed("test_a.py::test_x")


def test_a_test_that_is_not_there_has_not_passed():
    assert not read_junit(suite(PASSED)).passed("test_a.py::test_y")
    assert read_junit(suite(PASSED)).passed("test_a.py::test_x")


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        (b"", "no element found"),
        (b"<testsuite>", "no element found"),
        (b"<html/>", "root is <html>"),
        (b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuite>&b;</testsuite>', "document type"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        (b'<?xml version="1.0" encoding="nonsense"?><testsuite/>', "unknown encoding"),
        (b"<testsuite>" + b"<a>" * 50, "nested more than"),
        (suite("<testcase>&undefined;</testcase>"), "undefined entity"),
        (b"\xff\xfe\x00", "no readable JUnit report"),
    ],
)
def test_what_is_no_report_is_refused(xml, reason):
    with pytest.raises(ReportUnreadable, match=reason):
        read_junit(xml)


@pytest.mark.parametrize("time", ["-1", "nan", "inf", "soon", ""])
def test_a_duration_that_is_no_time_is_zero(time):
    report = read_junit(suite(f'<testcase classname="a" name="t" time="{time}"/>'))
    assert report.cases["a.py::t"].duration_s == 0.0


def test_long_texts_are_cut():
    long = "x" * (3 * MAX_TEXT_CHARS)
    report = read_junit(
        suite(f'<testcase classname="a" name="t"><error message="{long}">{long}</error></testcase>')
    )
    case = report.cases["a.py::t"]
    assert (len(case.message), len(case.details)) == (MAX_TEXT_CHARS, MAX_TEXT_CHARS)


@given(st.binary(max_size=200) | st.text(alphabet="<>/&!testcasue=\"' ", max_size=200).map(str.encode))
def test_any_bytes_give_a_report_or_a_refusal(data):
    with contextlib.suppress(ReportUnreadable):
        assert isinstance(read_junit(data), PytestReport)
