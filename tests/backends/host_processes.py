"""What is left on this host, where the remote sides of the tests run too, beside other tests."""

import asyncio
import random
from pathlib import Path


def new_mark() -> str:
    """Return a number of seconds: who sleeps that long belongs to the test that asked for it."""
    return str(random.SystemRandom().randrange(10**9, 10**10))


def sleeping(mark: str) -> list[int]:
    """Return the processes of this host that sleep for so long, or are about to."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if entry.name.isdigit() and {"sleep", mark} <= set(arguments):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def until(condition, timeout_s=120):
    """Wait until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.02)
