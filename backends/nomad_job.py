"""The Nomad job that holds one container of slots, and the programs that make it end with its harness."""

from dataclasses import dataclass, field
from typing import Any

from backends.bubblewrap import SandboxLimits
from trajectories.errors import ConfigError

PREFIX = "lachesis-"
TASK = "slots"
LEASE = "/dev/shm/.lachesis-lease"

MAIN = f"""
trap 'exit 0' TERM
: >{LEASE}
last=none now=
while [[ $now != "$last" ]]; do
    last=$now
    sleep {{lease_s}} &
    wait $!
    now=$(<{LEASE})
done
"""
"""A container's first process: ends once the lease was not renewed for a while, or never taken up."""

GUARD = f"""
while read -r -t {{lease_s}} beat; do printf '%d\\n' $((++n)) >{LEASE}; done
kill -TERM 1
"""
"""Renews the lease at every beat, and ends the container as soon as the stream of beats ends."""


@dataclass(frozen=True, slots=True)
class NomadLimits(SandboxLimits):
    """How Nomad is reached, what a container is, and what one sandbox in it may use."""

    address: str = "http://127.0.0.1:4646"
    token_file: str | None = None
    """File with the secret of an ACL token; options themselves are saved with the data."""
    namespace: str | None = None
    region: str | None = None
    datacenters: tuple[str, ...] = ("*",)
    driver: str = "docker"
    """Task driver. Only docker is tested, whose plugin on Nomad's clients has to allow the capability
    sys_admin (``allow_caps``); see ``driver_config`` for others, such as singularity."""
    driver_config: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further entries of the task's ``config`` block, or replacements of ours."""
    image: str = "debian:stable-slim"
    """Default image of the containers; it needs bash, coreutils, tar, util-linux and bubblewrap."""
    slots_per_container: int = 8
    max_containers: int = 64
    cpu_mhz: int = 1000
    """Reserved for a container."""
    container_memory_mb: int = 8192
    """Of a container, all its sandboxes and their files together."""
    place_timeout_s: float = 300.0
    """Longest wait until Nomad has placed a container and its image is there."""
    idle_s: float = 120.0
    """A container without sandboxes is given back after this."""
    lease_s: float = 60.0
    """A container ends if its harness is not heard of for this long."""

    def __post_init__(self) -> None:
        for name in ("slots_per_container", "max_containers", "idle_s", "lease_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: must be positive, not {getattr(self, name)!r}")


def job_request(name: str, image: str, limits: NomadLimits, meta: dict[str, str]) -> dict[str, Any]:
    """Compose the request that registers a container which is started once and never moved.

    Bubblewrap makes namespaces and mounts, so the container keeps one capability and no seccomp filter. What
    runs in a sandbox has neither that capability nor a way to a namespace of its own.
    """
    never = {"Attempts": 0, "Unlimited": False}
    main = MAIN.format(lease_s=limits.lease_s)
    return {
        "Job": {
            "ID": name,
            "Name": name,
            "Type": "batch",
            "Datacenters": list(limits.datacenters),
            "Meta": meta,
            "TaskGroups": [
                {
                    "Name": TASK,
                    "Count": 1,
                    "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                    "ReschedulePolicy": never,
                    "Tasks": [
                        {
                            "Name": TASK,
                            "Driver": limits.driver,
                            "User": "root",
                            "Config": {
                                "image": image,
                                "command": "bash",
                                "args": ["--noprofile", "--norc", "-c", main],
                                "network_mode": "none",
                                "cap_add": ["sys_admin"],
                                "security_opt": ["seccomp=unconfined"],
                                **limits.driver_config,
                            },
                            "Resources": {"CPU": limits.cpu_mhz, "MemoryMB": limits.container_memory_mb},
                            "KillTimeout": 1_000_000_000,
                        }
                    ],
                }
            ],
        }
    }
