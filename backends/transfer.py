"""Files in and out of a sandbox, byte for byte, through its control shell.

A path means what it means inside the sandbox: symlinks the agent made are resolved there and can't reach
the host, which reading through a mount of the sandbox's files would allow. Only coreutils and tar are
needed inside.
"""

import asyncio
import errno
import os
import posixpath
import secrets
import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from backends.archive import pack, unpack
from backends.base import OnOutput
from backends.machine import Machine
from backends.shell import Run
from trajectories.errors import SandboxDied

TRANSFER_TIMEOUT_S = 300.0
CHUNK_BYTES = 128 * 1024

_ERRNO = {os.strerror(number): number for number in errno.errorcode}


def with_stdin(code: str, size: int) -> str:
    """Wrap code so that it reads ``size`` bytes of the shell's request stream as its standard input.

    They pass through a file, so that code which does not read them all leaves none in the stream.
    """
    path = f"/tmp/.stdin-{secrets.token_hex(8)}"
    return f"{_take(size, f'cat >{path} || {{ rm -f {path}; false; }}')} && {{ rm {path}; {code}\n}} <{path}"


def _take(size: int, consumer: str) -> str:
    """Feed ``size`` bytes to a consumer, and read them all even if it fails."""
    return f"head -c {size} | {{ {consumer}; code=$?; cat >/dev/null; exit $code; }}"


async def write_file(machine: Machine, path: str, data: bytes, mode: int | None) -> None:
    """See `Slot.write_file`."""
    target = _resolve(machine, path)
    part = posixpath.join(posixpath.dirname(target), f".part-{secrets.token_hex(8)}")
    permissions = '[ ! -e "$file" ] || cp -p "$file" "$part"' if mode is None else ":"
    final = ":" if mode is None else f'chmod {mode:o} "$part"'
    store = f"""
        if [ -d "$file" ]; then echo "$file: Is a directory" >&2; false
        else mkdir -p "${{file%/*}}/" && {permissions} && cat >"$part" && {final} && mv -f "$part" "$file" ||
            {{ code=$?; rm -f "$part"; (exit $code); }}
        fi"""
    code = f"""
        file={shlex.quote(target)} part={shlex.quote(part)}
        [ ! -L "$file" ] || file=$(readlink -f "$file")
        {_take(len(data), store)}"""
    view = memoryview(data)
    pieces = (bytes(view[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES))
    await _control(machine, code, path, stdin=pieces)


async def read_file(machine: Machine, path: str, max_bytes: int) -> bytes:
    """See `Slot.read_file`."""
    code = f"""
        file={shlex.quote(_resolve(machine, path))}
        if [ -e "$file" ] && [ ! -f "$file" ] && [ ! -d "$file" ]; then
            echo "$file: Invalid argument" >&2; exit 1
        fi
        head -c {max_bytes + 1} "$file" """
    run = await _control(machine, code, path, max_bytes=max_bytes + 1)
    data = run.captures[1].data()
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than max_bytes={max_bytes}", path)
    return data


async def upload(machine: Machine, source: Path, destination: str) -> None:
    """See `Slot.upload`."""
    with tempfile.TemporaryFile() as archive:
        size = await asyncio.to_thread(pack, source, archive)
        target = shlex.quote(_resolve(machine, destination))
        code = _take(size, f"mkdir -p {target} && tar -xpof - -C {target}")
        await _control(machine, code, destination, stdin=iter(lambda: archive.read(CHUNK_BYTES), b""))


async def download(machine: Machine, source: str, destination: Path, max_bytes: int) -> None:
    """See `Slot.download`."""
    with tempfile.TemporaryFile() as archive:
        code = f"tar -cf - -C {shlex.quote(_resolve(machine, source))} ."
        await _control(machine, code, source, on_output=_into(archive, max_bytes, source))
        await asyncio.to_thread(unpack, archive, destination)


def _into(archive: BinaryIO, max_bytes: int, path: str) -> OnOutput:
    def write(channel: str, data: bytes) -> None:
        if channel != "stdout":
            return
        if archive.tell() + len(data) > max_bytes:
            raise OSError(errno.EFBIG, f"more than max_bytes={max_bytes}", path)
        archive.write(data)

    return write


def _resolve(machine: Machine, path: str) -> str:
    if "\0" in path or not path:
        raise OSError(errno.EINVAL, "not a path", path)
    return posixpath.join(machine.sandbox.workspace, path)


async def _control(
    machine: Machine,
    code: str,
    path: str,
    *,
    stdin: Iterable[bytes] | None = None,
    max_bytes: int = 64 * 1024,
    on_output: OnOutput | None = None,
) -> Run:
    """Run code in a subshell of the control shell; turn what it says on failure into an `OSError`."""
    run = await machine.run(
        machine.shell("control"),
        f"( LC_ALL=C; export LC_ALL; {code}\n)",
        timeout_s=TRANSFER_TIMEOUT_S,
        stdin=stdin,
        max_bytes=max_bytes,
        on_output=on_output,
    )
    if run.ending == "timed_out":
        raise TimeoutError(errno.ETIMEDOUT, f"the transfer took longer than {TRANSFER_TIMEOUT_S:g} s", path)
    if run.exit_code != 0:
        said = run.captures[2].text().strip().splitlines() or [f"exit code {run.exit_code}"]
        if run.exit_code == 137:
            raise SandboxDied(f"the transfer of {path!r} was killed")
        raise _os_error(said, path)
    return run


def _os_error(said: list[str], path: str) -> OSError:
    for line in said:
        reason = line.rsplit(": ", 1)[-1]
        if reason in _ERRNO:
            return OSError(_ERRNO[reason], reason, path)
    return OSError(errno.EIO, said[0], path)
