"""What every backend must do, as named checks that anyone can run against theirs.

    python -m backends.conformance docker image=debian:stable-slim

A check takes a factory of backends and uses nothing but the contract, so it holds for backends that share
none of our machinery. What a kind of backend can't do is a named gap: its check must fail, or the gap is out
of date.
"""

import asyncio
import sys
import traceback
from collections.abc import Callable, Mapping

from backends import (
    checks_commands,
    checks_endings,
    checks_files,
    checks_isolation,
    checks_leases,
    checks_users,
)
from backends.base import ToolBackend
from backends.check import Check, collected
from backends.registry import create_backend, parse_options

CHECKS: list[Check] = [
    check
    for module in (
        checks_commands,
        checks_endings,
        checks_files,
        checks_isolation,
        checks_leases,
        checks_users,
    )
    for check in collected(module)
]

ONE_USER = {check.name: "its sandboxes are made for one user alone" for check in collected(checks_users)}

EACH_ALONE = "needs a memory cgroup; each process is bounded alone"

GAPS: Mapping[str, Mapping[str, str]] = {
    "local": ONE_USER,
    "docker": {},
    "modal": {
        **ONE_USER,
        "the_agent_cannot_make_namespaces_or_mounts": "it can make a user namespace; Modal bounds it",
    },
    "nomad": ONE_USER,
    "ssh": {**ONE_USER, "memory_of_all_processes_together_is_bounded": EACH_ALONE},
}
"""Checks that a kind of backend is known to fail, with the reason."""

CHECK_TIMEOUT_S = 120.0


async def run_check(check: Check, factory: Callable[..., ToolBackend]) -> None:
    """Run one check within its time.

    Raises:
        AssertionError: The backend does not conform.
    """
    async with asyncio.timeout(CHECK_TIMEOUT_S):
        await check.run(factory)


def main(arguments: list[str]) -> int:
    """Run every check against ``KIND [OPTION=VALUE ...]`` and print what failed; return an exit code."""
    kind, *settings = arguments
    options = parse_options(settings)
    gaps = GAPS.get(kind, {})
    failures = 0
    for check in CHECKS:
        try:
            asyncio.run(run_check(check, lambda **more: create_backend(kind, **{**options, **more})))
        except Exception:
            verdict = f"gap ({gaps[check.name]})" if check.name in gaps else "FAILED"
            if verdict == "FAILED":
                traceback.print_exc()
        else:
            verdict = "ok" if check.name not in gaps else "FAILED: it is listed as a gap, but holds"
        failures += verdict.startswith("FAILED")
        print(f"{check.name}: {verdict}", flush=True)
    print(f"{len(CHECKS)} checks, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
