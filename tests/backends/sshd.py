"""A real SSH server on loopback, with keys that are thrown away with it."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.free_port import free_port
from tests.real_parts import unavailable

USER = "lachesis-ssh"
"""Has no privileges; root may log in too."""


@dataclass
class Sshd:
    """A running server."""

    folder: Path
    port: int
    process: subprocess.Popen

    @property
    def options(self) -> dict:
        """What `create_backend("ssh", …)` needs to reach it."""
        return {
            "host": f"{USER}@127.0.0.1:{self.port}",
            "client_keys": (str(self.folder / "client_key"),),
            "known_hosts": str(self.folder / "known_hosts"),
        }

    def connections(self) -> list[int]:
        """Return the server's processes for its connections."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that the users whom a server lets in can read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def make_key(path: Path) -> None:
    """Write a new pair of keys."""
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", path], check=True)


@contextmanager
def sshd_with(*lines: str) -> Iterator[Sshd]:
    """Run a server with further configuration ``lines``."""
    with open_folder() as folder:
        server = _start(folder, lines)
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait()


def _start(folder: Path, lines: tuple[str, ...]) -> Sshd:
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    users = {entry.pw_name for entry in pwd.getpwall()}
    if (
        program is None
        or shutil.which("bwrap") is None
        or USER not in users
        or not Path("/run/sshd").is_dir()
    ):
        unavailable("no SSH server with bubblewrap here; .ci/sshd installs them")
    for name in ("host_key", "client_key"):
        make_key(folder / name)
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    port = free_port()
    host_key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "config").write_text(
        "\n".join(
            [
                f"Port {port}",
                "ListenAddress 127.0.0.1",
                f"HostKey {folder}/host_key",
                f"AuthorizedKeysFile {folder}/authorized_keys",
                "StrictModes no",
                "PasswordAuthentication no",
                "UsePAM no",
                "PidFile none",
                "MaxStartups 100",
                *lines,
            ]
        )
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stderr=log)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return Sshd(folder, port, process)
        except OSError:
            time.sleep(0.05)
    raise RuntimeError((folder / "log").read_text())
