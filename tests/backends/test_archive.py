import io
import os
import tarfile
from pathlib import Path

import pytest

from backends.archive import pack, unpack
from backends.base import UnsafeArchive


def archive(*members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, extra in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(extra)
                tar.addfile(member, io.BytesIO(extra))
            else:
                member.linkname = extra
                tar.addfile(member)
    return stream


FILE, LINK, HARD, DIRECTORY = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE

ATTACKS = {
    "absolute name": [("/tmp/evil", FILE, b"x")],
    "climbing name": [("../evil", FILE, b"x")],
    "climbing name, hidden": [("a/../../evil", FILE, b"x")],
    "absolute link": [("a", LINK, "/etc")],
    "climbing link": [("a", LINK, "../..")],
    "climbing link in a directory": [("d/e/a", LINK, "../../../x")],
    "climbing through another link": [("d/here", LINK, ".."), ("d/x", LINK, "here/..")],
    "hard link to nothing of ours": [("a", HARD, "/etc/passwd")],
    "hard link through a link": [("a", LINK, "b"), ("c", HARD, "a")],
    "character device": [("a", tarfile.CHRTYPE, "")],
    "block device": [("a", tarfile.BLKTYPE, "")],
    "fifo": [("a", tarfile.FIFOTYPE, "")],
    "file in a file": [("a", LINK, "."), ("a/../../evil", FILE, b"x")],
}


@pytest.mark.parametrize("members", ATTACKS.values(), ids=ATTACKS.keys())
def test_hostile_members_are_refused_and_nothing_lands_outside(tmp_path, members):
    target = tmp_path / "inside" / "target"
    with pytest.raises(UnsafeArchive):
        unpack(archive(*members), target)
    outside = [path for path in tmp_path.rglob("*") if not path.is_relative_to(target)]
    assert outside == [tmp_path / "inside"]


def test_a_file_is_never_written_through_a_link_of_the_same_archive(tmp_path):
    unpack(archive(("real", DIRECTORY, ""), ("a", LINK, "real"), ("a", FILE, b"x")), tmp_path / "target")
    assert list((tmp_path / "target" / "real").iterdir()) == []


def test_a_link_that_is_already_there_is_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafeArchive):
        unpack(archive(("link/evil", FILE, b"x")), tmp_path / "target")
    assert list((tmp_path / "outside").iterdir()) == []


def test_garbage_is_refused(tmp_path):
    with pytest.raises(UnsafeArchive):
        unpack(io.BytesIO(b"no tar at all" * 100), tmp_path / "target")


def test_a_deep_tree_costs_one_step_for_each_directory(tmp_path, monkeypatch):
    made, mkdir = [], Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda path, **options: (made.append(path), mkdir(path, **options)))
    folders = ["d/" * depth for depth in range(1, 101)]
    files = [(f"{folders[-1]}{number}", FILE, b"x") for number in range(100)]
    unpack(archive(*((folder, DIRECTORY, "") for folder in folders), *files), tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 200
    assert len(made) <= 101


def test_hard_links_become_copies(tmp_path):
    unpack(archive(("a", FILE, b"content"), ("b", HARD, "a")), tmp_path)
    assert (tmp_path / "b").read_bytes() == b"content"


def test_packing_leaves_out_owners_and_what_is_no_file(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "source" / "pipe")
    stream = io.BytesIO()
    pack(tmp_path / "source", stream)
    with tarfile.open(fileobj=stream) as tar:
        assert [(member.name, member.uid, member.uname) for member in tar] == [("file", 0, "")]
