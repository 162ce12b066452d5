"""Conformance: files and directories in and out."""

import errno
import os
import tempfile
from collections.abc import Awaitable
from pathlib import Path

from backends.base import Slot, UnsafeArchive
from backends.check import expect, on_slot, output_of, require


async def _error_of(call: Awaitable[object]) -> OSError:
    try:
        await call
    except OSError as error:
        return error
    raise AssertionError("no OSError was raised")


@on_slot
async def files_are_written_and_read_byte_for_byte(slot: Slot) -> None:
    for data in (b"", b"\0", bytes(range(256)) * 17, b"no newline", b"\r\n\n", os.urandom(3_000_000)):
        await slot.write_file("file", data)
        expect(await slot.read_file("file") == data, True)
        expect(await output_of(slot, "stat -c %s file"), str(len(data)))


@on_slot
async def any_file_name_works(slot: Slot) -> None:
    for name in (
        "two words",
        "-n",
        "--help",
        "quo'te\"s",
        "new\nline",
        "$(id)",
        "é\U0001f600",
        "*",
        ".hidden",
        "a/b/c/d",
    ):
        await slot.write_file(name, name.encode())
        expect(await slot.read_file(name), name.encode())


@on_slot
async def relative_paths_start_at_the_workspace(slot: Slot) -> None:
    await slot.exec("cd /tmp")
    await slot.exec("cd /tmp", shell="control")
    await slot.write_file("d/file", b"x")
    expect(await slot.read_file(f"{slot.workspace}/d/file"), b"x")


@on_slot
async def a_missing_file_is_file_not_found(slot: Slot) -> None:
    require(isinstance(await _error_of(slot.read_file("missing")), FileNotFoundError), "wrong kind of error")
    require(isinstance(await _error_of(slot.download("missing", Path("/nonexistent"))), OSError), "no error")


@on_slot
async def a_directory_is_not_a_file(slot: Slot) -> None:
    await slot.exec("mkdir d")
    require(isinstance(await _error_of(slot.read_file("d")), IsADirectoryError), "a directory was read")
    require(
        isinstance(await _error_of(slot.write_file("d", b"")), IsADirectoryError), "a directory was written"
    )


@on_slot
async def what_is_not_allowed_is_an_os_error(slot: Slot) -> None:
    await slot.exec("touch secret; chmod 0 secret; mkdir sealed; chmod 0 sealed")
    require(
        isinstance(await _error_of(slot.read_file("secret")), PermissionError), "an unreadable file was read"
    )
    require(
        isinstance(await _error_of(slot.write_file("sealed/x", b"")), PermissionError),
        "a sealed one was written",
    )
    require(
        (await _error_of(slot.write_file("/usr/x", b""))).errno in (errno.EROFS, errno.EACCES),
        "/usr was written",
    )


@on_slot
async def a_file_that_is_too_long_is_refused(slot: Slot) -> None:
    await slot.exec("head -c 1001 /dev/zero >long")
    expect((await _error_of(slot.read_file("long", max_bytes=1000))).errno, errno.EFBIG)
    expect(len(await slot.read_file("long", max_bytes=1001)), 1001)


@on_slot
async def reading_what_is_no_file_does_not_hang(slot: Slot) -> None:
    await slot.exec("mkfifo pipe")
    for path in ("pipe", "/dev/zero", "/dev/tty"):
        require(await _error_of(slot.read_file(path, max_bytes=1000)), "no error")


@on_slot
async def modes_are_set_and_kept(slot: Slot) -> None:
    await slot.write_file("script", b"#!/bin/sh\necho one\n", mode=0o755)
    await slot.write_file("script", b"#!/bin/sh\necho two\n")
    expect(await output_of(slot, "./script; stat -c %a script"), "two\n755")


@on_slot
async def writing_through_a_link_changes_its_target(slot: Slot) -> None:
    await slot.exec("echo old >target; ln -s target link")
    await slot.write_file("link", b"new")
    expect(await output_of(slot, "cat target; readlink link"), "newtarget")


@on_slot
async def a_full_disk_is_reported_and_leaves_the_old_file(slot: Slot) -> None:
    await slot.write_file("kept", b"old")
    await slot.exec("head -c 20G /dev/zero >filler", timeout_s=100)
    expect((await _error_of(slot.write_file("kept", b"x" * 500_000))).errno, errno.ENOSPC)
    expect(await slot.read_file("kept"), b"old")
    expect(await output_of(slot, "rm filler; ls -A"), "kept")


@on_slot
async def shells_and_file_calls_see_the_same_files(slot: Slot) -> None:
    await slot.exec("echo from the shell >a")
    await slot.write_file("b", b"from the harness\n")
    expect(await slot.read_file("a"), b"from the shell\n")
    expect(await output_of(slot, "cat b; echo more >>b; cat b"), "from the harness\nfrom the harness\nmore")


def _tree(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): os.readlink(path)
        if path.is_symlink()
        else (path.is_file() and path.read_bytes(), path.stat().st_mode & 0o111)
        for path in sorted(root.rglob("*"))
    }


@on_slot
async def a_directory_survives_a_round_trip(slot: Slot) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "source", Path(name) / "target"
        (source / "a/empty").mkdir(parents=True)
        (source / "a/binary").write_bytes(os.urandom(300_000))
        (source / "a/tool").write_bytes(b"#!/bin/sh\n")
        (source / "a/tool").chmod(0o755)
        (source / "a" / "odd \n'name").write_bytes(b"")
        (source / "link").symlink_to("a/tool")
        (source / ("long" * 40)).write_bytes(b"x")
        await slot.upload(source, "copy")
        expect(
            await output_of(slot, "ls copy | wc -l; test -x copy/link && echo executable"), "3\nexecutable"
        )
        await slot.download("copy", target)
        expect(_tree(target), _tree(source))


@on_slot
async def uploading_adds_to_what_is_there(slot: Slot) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "new").write_bytes(b"new")
        (Path(name) / "both").write_bytes(b"new")
        await slot.exec("mkdir d; echo -n old | tee d/old >d/both")
        await slot.upload(Path(name), "d")
    expect(
        await output_of(slot, "cd d; for f in *; do echo $f $(cat $f); done"), "both new\nnew new\nold old"
    )


@on_slot
async def a_download_takes_nothing_that_could_leave_its_directory(slot: Slot) -> None:
    attacks = (
        "ln -s /etc/passwd x",
        "ln -s ../outside x",
        "mkdir a; ln -s ../.. a/up",
        "ln -s . here; ln -s here/.. x",
        "mkfifo x",
    )
    for number, attack in enumerate(attacks):
        await slot.exec(f"mkdir {number}; cd {number}; {attack}; cd ..")
        with tempfile.TemporaryDirectory() as name:
            target = Path(name) / "target"
            error = await _error_of(slot.download(str(number), target))
            require(isinstance(error, UnsafeArchive), f"{attack!r} gave {error!r}")
            expect([path.name for path in Path(name).iterdir()], ["target"])
            expect([path for path in target.rglob("*") if not path.is_dir()], [])


@on_slot
async def a_download_that_is_too_long_is_refused(slot: Slot) -> None:
    await slot.exec("mkdir d; head -c 3000000 /dev/zero >d/x")
    with tempfile.TemporaryDirectory() as name:
        error = await _error_of(slot.download("d", Path(name) / "target", max_bytes=1_000_000))
    expect(error.errno, errno.EFBIG)
    expect(await output_of(slot, "echo fine", shell="control"), "fine")
