from backends import create_backend, doctor


async def test_a_local_sandbox_here_is_isolated_in_all_but_total_memory():
    findings = await doctor.examine_backend("local", {})
    assert {finding.what for finding in findings if not finding.holds} <= {"has bounded memory as a whole"}


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
