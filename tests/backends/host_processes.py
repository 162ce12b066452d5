"""What is left on this host, where the remote sides of the tests run too."""

import asyncio
from pathlib import Path


def processes_with(argument: str) -> list[int]:
    """Return the processes that have ``argument`` among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def until(condition, timeout_s=30):
    """Wait until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.02)
