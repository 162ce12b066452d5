"""What has to be known of a host before bubblewrap can be started there, and how it is then."""

import asyncio
import shlex

from backends.bubblewrap import SANDBOX_UID, SYSTEM_DIRECTORIES, HostFacts, SandboxLimits, bubblewrap_job
from backends.link import STDOUT, source
from backends.remote import Host, Launch
from trajectories.errors import SandboxUnavailable

PACKAGES = {"unshare": "util-linux", "setpriv": "util-linux", "bwrap": "bubblewrap"}

PROGRAM = f"""
printf 'root %d\\n' "$((EUID == 0))"
for tool in {" ".join(PACKAGES)}; do printf 'tool %s %s\\n' "$tool" "$(type -P "$tool")"; done
for name in {" ".join(SYSTEM_DIRECTORIES)}; do
    if [[ -L $name ]]; then printf 'link %s %s\\n' "$name" "$(readlink "$name")"
    elif [[ -d $name ]]; then printf 'directory %s\\n' "$name"; fi
done
"""


async def look(host: Host, timeout_s: float) -> HostFacts:
    """Look at a host.

    Raises:
        SandboxUnavailable: It can't be reached, or lacks what sandboxes need.
    """
    said, over = bytearray(), asyncio.Event()

    def receive(channel: int, data: bytes) -> None:
        if not data:
            over.set()
        elif channel == STDOUT:
            said.extend(data)

    try:
        async with asyncio.timeout(timeout_s):
            process = await host.run(PROGRAM, receive, lambda reason: None)
            await over.wait()
            await process.end()
    except TimeoutError as error:
        raise SandboxUnavailable(f"{host.address} does not answer within {timeout_s:g} s") from error
    return _read(said.decode(errors="replace"), host.address)


def bubblewrap_launch(limits: SandboxLimits, facts: HostFacts) -> Launch:
    """Tell how bubblewrap is started on a host: in a process namespace of its own, the warden below it."""
    job, owner = bubblewrap_job(limits, facts), str(SANDBOX_UID)
    gain = [] if facts.root else ["--user", "--map-root-user"]
    lose = ["--setuid", owner, "--setgid", owner] if facts.root else []
    command = [
        *("env", "--default-signal", "setpriv", "--pdeathsig", "KILL", "unshare", *gain, "--mount"),
        *("sh", "-c", source("launch.sh"), "launch", job.storage, owner if facts.root else "0"),
        *(text.removesuffix("\n") for text in job.texts.values()),
        *("unshare", "--pid", "--fork", "--kill-child", *lose, "--mount-proc", *job.command),
    ]
    join = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups"] if facts.root else []
    return Launch(command, depth=2, join=shlex.join(join))


def _read(said: str, address: str) -> HostFacts:
    tools, links, directories, root = dict[str, str](), dict[str, str](), list[str](), False
    for line in said.splitlines():
        match line.split():
            case ["root", value]:
                root = value == "1"
            case ["tool", name, path]:
                tools[name] = path
            case ["link", name, target]:
                links[name] = target
            case ["directory", name]:
                directories.append(name)
            case _:
                pass  # what the host's start-up files print
    for tool, package in PACKAGES.items():
        if tool not in tools:
            raise SandboxUnavailable(f"{address} has no {tool!r}: install {package} there", retryable=False)
    return HostFacts(root, tools["bwrap"], links, tuple(directories))
