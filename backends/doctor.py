"""Tells what isolation is real on this host, by trying it.

    python -m backends.doctor [KIND [OPTION=VALUE ...]]

The answers come from a sandbox started just now, not from what the configuration asks for: kernels,
containers and security modules take away more than any version number tells.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from backends.base import Slot
from backends.memory_groups import MemoryGroups
from backends.overlays import overlays_work
from backends.registry import available_backends, create_backend, parse_options
from trajectories.errors import LachesisError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that should hold, and whether it does."""

    what: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """A command that succeeds only where the isolation is real."""

    what: str
    command: str
    otherwise: str


MEMORY = Probe(
    "has bounded memory as a whole",
    "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null"
    " | grep -Eq '^[0-9]{1,12}$'",
    "only each process is bounded",
)
"""Holds where a sandbox sees its control group; a local one does not."""

PROBES = (
    Probe(
        "sees its own processes only", "[ $(ls -d /proc/[0-9]* | wc -l) -lt 20 ]", "the host's are visible"
    ),
    Probe("has no network", "! tail -n +3 /proc/net/dev | grep -qv 'lo:'", "it has network interfaces"),
    Probe("has no capabilities", "grep -q 'CapBnd:.0000000000000000' /proc/self/status", "it has some"),
    Probe("can't gain privileges", "grep -q 'NoNewPrivs:.1' /proc/self/status", "setuid programs work"),
    Probe("can't make namespaces", "! unshare -Ur true 2>/dev/null", "it can, and reach more of the kernel"),
    Probe("can't change the system", "! (touch /usr/x || touch /x) 2>/dev/null", "it can"),
    Probe("does not know the host's name", "[ $(cat /proc/sys/kernel/hostname) = sandbox ]", "it does"),
    Probe(
        "has bounded disk space",
        "[ $(df --output=size -BM . | tail -1 | tr -dc 0-9) -le 1024 ]",
        "the host's",
    ),
    Probe("has a bounded number of files", "[ $(df --output=itotal . | tail -1) -le 200000 ]", "the host's"),
    Probe(
        "has a bounded number of processes",
        "[ $(ulimit -u) != unlimited ] && [ $(ulimit -u) -le 4096 ] ||"
        " cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null | grep -q '^[0-9]'",
        "a fork bomb takes the host's",
    ),
)


def examine_host() -> list[Finding]:
    """Look at what local sandboxes are built from."""
    root = os.geteuid() == 0
    findings = [_user_namespaces(as_user=65534 if root else os.geteuid())]
    groups = MemoryGroups.here()
    reason = (
        "the kernel ends sandboxes first when the host runs out; run the harness as root, or in a group of"
        " its own with `systemd-run --user --scope -p Delegate=yes`"
    )
    findings.append(
        Finding("memory of whole sandboxes can be bounded", groups is not None, "" if groups else reason)
    )
    if groups is not None:
        groups.close()
    overlays = overlays_work()
    reason = "" if overlays else "workspaces are copied from `workspace_from`"
    findings.append(Finding("workspaces can be copy-on-write", overlays, reason))
    if root:
        detail = "sandboxes run as a user of their own, since no process limit binds root"
        findings.append(Finding("the harness is root", True, detail))
    return findings


def _user_namespaces(as_user: int) -> Finding:
    what = "unprivileged user namespaces work"
    if shutil.which("unshare") is None:
        return Finding(what, False, "not tried, for want of `unshare`: install util-linux")
    trial = ["unshare", "--user", "--map-root-user", "true"]
    done = subprocess.run(trial, user=as_user, capture_output=True, text=True, check=False)
    return Finding(what, done.returncode == 0, done.stderr.strip() or "sandboxes need no privileges here")


async def examine_slot(slot: Slot) -> list[Finding]:
    """Run the probes inside a slot."""
    findings = list[Finding]()
    sees_group = (await slot.exec("[ -d /sys/fs/cgroup ]")).exit_code == 0
    for probe in (*PROBES, MEMORY) if sees_group else PROBES:
        result = await slot.exec(probe.command, isolated=True)
        holds = result.exit_code == 0
        findings.append(Finding(probe.what, holds, "" if holds else probe.otherwise))
    return findings


async def examine_backend(kind: str, options: dict[str, Any]) -> list[Finding]:
    """Start one sandbox of a kind and examine it; a kind that does not work here is a finding too."""
    try:
        async with create_backend(kind, warm=0, **options) as backend, backend.acquire("doctor") as slot:
            return [Finding("sandboxes start", True), *await examine_slot(slot)]
    except LachesisError as error:
        return [Finding("sandboxes start", False, str(error))]


def main(arguments: list[str]) -> int:
    """Examine one kind of backend, or all; return 1 if none of them works."""
    kinds = arguments[:1] or available_backends()
    options = parse_options(arguments[1:])
    working = 0
    _report("this host", examine_host())
    for kind in kinds:
        findings = asyncio.run(examine_backend(kind, options))
        working += findings[0].holds
        _report(f"a sandbox of kind {kind!r}", findings)
    return 0 if working else 1


def _report(subject: str, findings: list[Finding]) -> None:
    print(f"{subject}:")
    for finding in findings:
        detail = f": {finding.detail}" if finding.detail else ""
        print(f"  {'yes' if finding.holds else 'NO '}  {finding.what}{detail}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
