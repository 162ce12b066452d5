import pytest

from backends import create_backend, doctor


async def test_a_local_sandbox_here_is_isolated():
    findings = await doctor.examine_backend("local", {})
    assert [finding.what for finding in findings if not finding.holds] == []


@pytest.mark.docker
async def test_a_container_here_is_isolated():
    findings = await doctor.examine_backend("docker", {"image": "lachesis-test"})
    assert [finding.what for finding in findings if not finding.holds] == []
    assert "has bounded memory as a whole" in [finding.what for finding in findings]


def test_a_host_without_control_groups_is_told_what_would_help(monkeypatch):
    monkeypatch.setattr(doctor.MemoryGroups, "here", lambda: None)
    (finding,) = [finding for finding in doctor.examine_host() if finding.what.startswith("memory")]
    assert (finding.holds, "Delegate=yes" in finding.detail) == (False, True)


async def test_a_backend_that_does_not_work_here_is_a_finding():
    (finding,) = await doctor.examine_backend("docker", {"host": "unix:///nonexistent.sock"})
    assert (finding.holds, "can't be reached" in finding.detail) == (False, True)


async def test_probes_tell_when_isolation_is_missing():
    async with create_backend("local", warm=0, processes=5000) as backend, backend.acquire("a") as slot:
        findings = {finding.what: finding for finding in await doctor.examine_slot(slot)}
    assert not findings["has a bounded number of processes"].holds


def test_the_command_line_reports_and_says_whether_anything_works(capsys):
    assert doctor.main(["local", "disk_mb=64"]) == 0
    assert "yes  sandboxes start" in capsys.readouterr().out
    assert doctor.main(["docker", "host=unix:///nonexistent.sock"]) == 1
