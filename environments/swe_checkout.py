"""A task's repository as files in a folder of the host: from the row itself, or from a clone."""

import asyncio
import tempfile
from pathlib import Path

from backends.archive import unpack
from environments.swe_rows import SweItem
from trajectories.errors import ConfigError, SandboxError


def find_code(row: SweItem, repositories: Path | None) -> Path | None:
    """Return the clone that holds the row's repository; None where the row holds it itself.

    Raises:
        ConfigError: It is nowhere.
    """
    if row.files is not None:
        return None
    if repositories is None or row.repo is None or row.base_commit is None:
        raise ConfigError(
            f"env.dataset: where is the code of {row.instance_id}? Rows need `files` or `image`, or `repo` "
            "and `base_commit` with env.repositories; env.image names an image for all"
        )
    clone = (repositories / row.repo).resolve()
    if not clone.is_relative_to(repositories.resolve()) or not clone.is_dir():
        raise ConfigError(f"env.repositories: {repositories} holds no clone {row.repo}")
    return clone


async def check_out(row: SweItem, repositories: Path | None, folder: Path) -> None:
    """Write the files of the row's repository into an empty folder.

    Raises:
        ConfigError: They are nowhere.
        SandboxError: Git could not read the commit.
    """
    clone = find_code(row, repositories)
    if clone is None:
        await asyncio.to_thread(_write, row.files or {}, folder)
        return
    with tempfile.TemporaryFile() as archive:
        git = await asyncio.create_subprocess_exec(
            *("git", "-C", str(clone), "archive", "--format=tar", str(row.base_commit)),
            stdout=archive,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await git.communicate()
        if git.returncode != 0:
            reason = said.decode("utf-8", "replace").strip()
            raise SandboxError(f"{row.instance_id}: no commit {row.base_commit} in {clone}: {reason}")
        await asyncio.to_thread(unpack, archive, folder)


def _write(files: dict[str, str], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
