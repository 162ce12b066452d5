"""Directories as tar streams. What comes out of a sandbox is hostile: nothing of it may land elsewhere.

`tarfile`'s own extraction filters have been escaped before, through symlinks that resolve differently once
other members are written. Here no member is ever written through a symlink: links are made last, and only
those whose target, taken literally, stays inside.
"""

import os
import posixpath
import shutil
import tarfile
from pathlib import Path
from typing import BinaryIO

from backends.base import UnsafeArchive


def pack(source: Path, archive: BinaryIO) -> int:
    """Write a directory's contents as a tar stream, rewind it, and return its size in bytes.

    Raises:
        OSError: ``source`` is no directory, or something in it can't be read.
    """
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(os.listdir(source)):
            tar.add(source / entry, arcname=entry, filter=_anonymous)
    size = archive.tell()
    archive.seek(0)
    return size


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Drop owners, and what is neither file, directory nor link."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.isdev() else member


def unpack(archive: BinaryIO, destination: Path) -> None:
    """Extract an untrusted tar stream into a directory, which is created.

    Raises:
        UnsafeArchive: A member that would leave the directory, or is a device or FIFO. What came before it is
            there; nothing is outside.
    """
    archive.seek(0)
    root = destination.resolve()
    root.mkdir(parents=True, exist_ok=True)
    links: list[tuple[Path, str]] = []
    real = {root}
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                path = root / _safe_name(member.name)
                if member.isdir():
                    _make_directory(real, path)
                elif member.issym():
                    _check_link(member)
                    links.append((path, member.linkname))
                elif member.isreg() or member.islnk():
                    _make_directory(real, path.parent)
                    _write(tar, member, root, path)
                else:
                    raise UnsafeArchive(f"{member.name!r} is a device or FIFO")
    except tarfile.TarError as error:
        raise UnsafeArchive(f"not a tar stream: {error}") from error
    for path, target in links:
        _make_directory(real, path.parent)
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _safe_name(name: str) -> str:
    normal = posixpath.normpath(name)
    if normal.startswith(("/", "../")) or normal == "..":
        raise UnsafeArchive(f"{name!r} leaves the directory")
    return normal


def _check_link(member: tarfile.TarInfo) -> None:
    """Refuse a link that could lead outside, even by way of other links.

    It may climb at first, through directories that are real, and then only descend: ``a/..`` need not be here
    where ``a`` is a link.
    """
    climbs = [part == ".." for part in member.linkname.split("/")]
    if member.linkname.startswith("/") or climbs != sorted(climbs, reverse=True):
        raise UnsafeArchive(f"{member.name!r} links to {member.linkname!r}")
    _safe_name(posixpath.join(posixpath.dirname(member.name), member.linkname))


def _make_directory(real: set[Path], path: Path) -> None:
    """Create a directory below one of those known to be real, refusing to pass through a symlink.

    They stay real while links are yet to be made, and looking at each once keeps deep trees cheap.
    """
    missing = list[Path]()
    while path not in real:
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        if directory.is_symlink():
            raise UnsafeArchive(f"{directory} is a symlink")
        directory.mkdir(exist_ok=True)
        real.add(directory)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path, path: Path) -> None:
    if member.islnk():  # a second name of a file that came before
        original = root / _safe_name(member.linkname)
        if original.is_symlink() or not original.is_file():
            raise UnsafeArchive(f"{member.name!r} is a hard link to {member.linkname!r}")
        shutil.copyfile(original, path, follow_symlinks=False)
        return
    source = tar.extractfile(member)
    assert source is not None, "a regular member has data"
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, member.mode & 0o777)
    with source, open(fd, "wb") as target:
        shutil.copyfileobj(source, target)
