"""Removes containers whose harness is gone.

    python -m backends.reaper [--host unix:///var/run/docker.sock] [--min-age-s 60] [--dry-run]

Containers normally die with their harness; this is for one killed between creating a container and starting
it, and for what a crashed engine or a stopped host left behind. Every backend that starts does the same. It
removes what is labelled as ours and either belongs to a process of this boot that has ended, or has
outlived its expiry. The age gate spares a container that was created a moment ago and whose labels another
process is still reading; a container of another host is only ever removed by expiry.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass
from typing import Any, Literal

from backends.docker_api import DEFAULT_HOST, DockerApi, remove_container
from backends.owner import Owner

MIN_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class Orphan:
    """A container that nobody will come back for."""

    container: str
    reason: Literal["expired", "owner gone"]
    age_s: float


async def orphans(api: DockerApi, min_age_s: float = MIN_AGE_S) -> list[Orphan]:
    """List the containers to remove.

    Raises:
        SandboxUnavailable: The engine can't be reached.
    """
    listed = await api.call("GET", "/containers/json", all=True, filters={"label": ["lachesis.run"]})
    now = time.time()
    found = (_judge(entry, now) for entry in listed)
    return [orphan for orphan in found if orphan is not None and orphan.age_s >= min_age_s]


async def reap(api: DockerApi, min_age_s: float = MIN_AGE_S) -> list[Orphan]:
    """Remove every orphan and return what was removed.

    Raises:
        SandboxUnavailable: The engine can't be reached.
        SandboxDied: A container can't be removed.
    """
    found = await orphans(api, min_age_s)
    for orphan in found:
        await remove_container(api, orphan.container)
    return found


def _judge(entry: dict[str, Any], now: float) -> Orphan | None:
    labels, age_s = entry["Labels"], now - entry["Created"]
    owner = Owner.of(labels)
    if labels.get("lachesis.expires", "").isdigit() and int(labels["lachesis.expires"]) < now:
        return Orphan(entry["Id"], "expired", age_s)
    if owner is not None and owner.is_gone():
        return Orphan(entry["Id"], "owner gone", age_s)
    return None


async def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="backends.reaper", description="Remove containers without a harness."
    )
    parser.add_argument("--host", default=DEFAULT_HOST, help="the engine: unix:///path or tcp://host:port")
    parser.add_argument("--min-age-s", type=float, default=MIN_AGE_S, help="spare what is younger")
    parser.add_argument("--dry-run", action="store_true", help="list, and remove nothing")
    options = parser.parse_args(arguments)
    api = DockerApi(options.host)
    try:
        work = orphans if options.dry_run else reap
        found = await work(api, options.min_age_s)
    finally:
        await api.close()
    for orphan in found:
        print(f"{orphan.container[:12]}  {orphan.reason}, {orphan.age_s:.0f} s old")
    print(f"{len(found)} container(s) {'would be ' if options.dry_run else ''}removed")


if __name__ == "__main__":
    asyncio.run(main())
