"""Runs tests in the judge's sandbox and says which passed; sent there as text, for Python 3.8 or newer.

Two processes. The supervisor never imports what is judged, lets no other process of its user look into it
(it is not dumpable), and is alone in knowing the key that a verdict must carry; its first line of output is
the key's hash, said before anything judged has run. For each test file it starts a worker, a pytest of its
own, and believes it only if the worker's account is whole: every test file is still what it was, the worker
said to the end what it did and knew its token, and the tripwires failed. Tripwires are tests added before and
after the real ones that nobody could pass; where they pass, or are missing, pytest was tampered with.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

START_S = 20.0
"""For a worker to have pytest ready, even on a host that is busy."""

MAX_ACCOUNT_BYTES = 16 * 2**20

TRIPWIRE = """
import unittest
import pytest

class Test{name}(unittest.TestCase):
    def test_equal(self):
        self.assertEqual("{one}", "{other}")
    def test_true(self):
        self.assertTrue(not "{one}")
    def test_raises(self):
        with self.assertRaises(ValueError):
            str("{one}")
    def test_plain(self):
        assert "{one}" == "{other}"

def test_plain():
    assert "{one}" == "{other}"
def test_approx():
    assert 1.0 == pytest.approx(2.0)
def test_raises():
    with pytest.raises(ValueError):
        str("{one}")
def test_error():
    raise RuntimeError("{one}")
"""
TRIPWIRE_TESTS = 8


def supervise(request):
    """Run every test file in a worker and print the verdict.

    ``request`` has ``workspace``, ``paths`` (for the import path), ``files`` (test file → indices of its
    tests), ``tests`` (node ids), ``watched`` (patterns of files that must not change), ``options`` (of
    pytest) and ``timeout_s``. The verdict has ``passed``, one character a test (1 or 0), ``notes`` on what
    was wrong, and ``broken``, which says why no test could be run at all.
    """
    with open("/proc/self/cmdline", "rb") as command_line:
        own_command = command_line.read().split(b"\0")[1:-2]
    libc = ctypes.CDLL(None)
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, value, 0, 0, 0):
            sys.exit(f"prctl({option}) was refused")
    key = secrets.token_hex(16)
    print(hashlib.sha256(key.encode()).hexdigest(), flush=True)
    os.chdir(request["workspace"])
    before = fingerprints(request["watched"])
    deadline = time.monotonic() + request["timeout_s"]
    passed, notes, broken = set(), [], None
    for file, indices in request["files"].items():
        ids = {request["tests"][index]: index for index in indices}
        if time.monotonic() > deadline:
            notes.append(f"{file}: the time was up")
            continue
        task = {"file": file, "ids": list(ids), "paths": request["paths"], "options": request["options"]}
        outcome = run_file([sys.executable, *own_command], task, deadline)
        end_children()
        if changed(before, request["watched"]):
            passed.clear()
            notes.append(f"{file}: the tests were changed while they ran")
            break
        passed.update(ids[name] for name in outcome.get("passed", ()) if name in ids)
        notes += [f"{file}: {outcome[what]}" for what in ("note", "broken") if what in outcome]
        if "broken" in outcome and file == next(iter(request["files"])):
            broken = outcome["broken"]  # later ones may have been broken by what was judged before
            break
    marks = "".join("01"[index in passed] for index in range(len(request["tests"])))
    print(key, json.dumps({"passed": marks, "notes": notes, "broken": broken}), flush=True)


def fingerprints(patterns):
    """Hash the watched files: those of a watched name and, where a pattern has a slash, all below it."""
    found = {}
    for folder, _, names in os.walk("."):
        for path in (os.path.join(folder, name) for name in names):
            if any(is_watched(path, pattern) for pattern in patterns):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    found[path] = os.path.islink(path) or hashlib.sha256(file.read()).hexdigest()
    return found


def is_watched(path, pattern):
    """Tell whether a pattern stands for a path."""
    if "/" not in pattern:
        return os.path.basename(path) == pattern
    return path == pattern or path.startswith(f"{pattern}/")


def changed(before, patterns):
    """Tell whether a watched file is not what it was, or one of a watched name is new."""
    now = fingerprints(patterns)
    names = {pattern for pattern in patterns if "/" not in pattern}
    new = {path for path in now if path not in before and os.path.basename(path) in names}
    return bool(new) or any(now.get(path) != found for path, found in before.items())


def run_file(command, task, deadline):
    """Run the tests of one file in a worker between two files of tripwires; return what is believed of it."""
    folder = os.path.dirname(task["file"])
    wires = [os.path.join(folder, f"test_{secrets.token_hex(8)}.py") for _ in range(2)]
    for wire in wires:
        name, one, other = (secrets.token_hex(8) for _ in range(3))
        with open(wire, "w") as stream:
            stream.write(TRIPWIRE.format(name=name, one=one, other=other))
    token = secrets.token_hex(16)
    try:
        said, ending = converse(command, {**task, "token": token, "wires": wires}, deadline)
    finally:
        for wire in wires:
            with contextlib.suppress(OSError):
                os.unlink(wire)
    ready, _, account = said.partition(b"\n")
    if ready != b"ready":
        return {
            "broken": f"no pytest could be started: {said.decode('utf-8', 'replace') or 'it ended at once'}"
        }
    return {"note": ending} if ending else believed(account, token, wires)


def believed(line, token, wires):
    """Return what counts of a worker's account."""
    try:
        account = json.loads(line.decode())
        tripped = {name for name in account["failed"] if name.split("::")[0] in wires}
        if account["token"] != token:
            return {"note": "an account that no worker gave"}
        if len(tripped) != TRIPWIRE_TESTS * len(wires):
            return {"note": "tests that can't pass did not fail"}
        return {"passed": account["passed"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"note": "it ended without an account of its tests"}


def converse(command, task, deadline):
    """Start a worker, hear it out, and end it; return what it said and what was wrong with its ending."""
    to_hear, to_say = os.pipe()
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    worker = subprocess.Popen(
        [*command, "worker", str(to_say)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        pass_fds=[to_say],
        start_new_session=True,
    )
    os.close(to_say)
    assert worker.stdin is not None
    with contextlib.suppress(BrokenPipeError), worker.stdin as stdin:
        stdin.write(json.dumps(task).encode())
    said, ending = listen(to_hear, worker, deadline)
    os.close(to_hear)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    return said, ending


def listen(stream, worker, deadline):
    """Read until the worker has ended: what it forked may keep the stream open, and is not waited for."""
    said, start = b"", time.monotonic() + START_S
    while True:
        ended = worker.poll() is not None
        readable, _, _ = select.select([stream], [], [], 0 if ended else 0.02)
        data = os.read(stream, 65536) if readable else b""
        said += data
        if len(said) > MAX_ACCOUNT_BYTES:
            return said, "it said too much"
        if ended and not data:
            return said, None
        if not data and time.monotonic() > (deadline if said else start):
            return said, "the time was up"
        if readable and not data:
            time.sleep(0.01)


def end_children():
    """Kill what the worker started, detached or not: as their reaper, this process is their parent now."""
    while True:
        children = list(own_children())
        if not children:
            return
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def own_children():
    """List the processes whose parent this one is."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(entry)


def work(stream):
    """Run one test file with pytest and give an account of it."""
    say = os.fdopen(stream, "wb", buffering=0, closefd=False).write
    os.set_inheritable(stream, False)
    sys.pycache_prefix = f"/tmp/{secrets.token_hex(8)}"  # no bytecode is read that another process left
    try:
        import pytest
    except ImportError as error:
        sys.exit(say(str(error).encode()))
    say(b"ready\n")
    task = json.load(sys.stdin)
    to_json, leave = json.dumps, os._exit
    reporter = Reporter(set(task["ids"]), *task["wires"])
    files = [task["wires"][0], task["file"], task["wires"][1]]
    sys.path[:0] = task["paths"]
    options = ["--rootdir=.", "-p", "no:cacheprovider", "--continue-on-collection-errors", *task["options"]]
    pytest.main([*options, *files], plugins=[reporter])
    say(to_json({"token": task["token"], **reporter.account()}).encode())
    leave(0)  # what is registered to run at the exit gets no word in


class Reporter:
    """A plugin of pytest that picks the tests and takes down how they went."""

    def __init__(self, wanted, first, last):
        self.wanted = wanted
        self.order = {first: 0, last: 2}
        self.phases = {}

    def pytest_collection_modifyitems(self, items):
        """Keep the wanted tests, between the tripwires."""
        files = {item: item.nodeid.split("::")[0] for item in items}
        kept = [item for item in items if item.nodeid in self.wanted or files[item] in self.order]
        items[:] = sorted(kept, key=lambda item: self.order.get(files[item], 1))

    def pytest_runtest_logreport(self, report):
        """Note how a phase of a test went."""
        self.phases.setdefault(report.nodeid, []).append((report.when, report.outcome))

    def account(self):
        """Return which tests passed in every phase, and which failed."""
        whole = [(phase, "passed") for phase in ("setup", "call", "teardown")]
        return {
            "passed": [name for name, seen in self.phases.items() if seen == whole],
            "failed": [name for name, seen in self.phases.items() if ("call", "failed") in seen],
        }


if sys.argv[1:2] == ["worker"]:
    work(int(sys.argv[2]))
elif sys.argv[1:2] == ["supervise"]:
    supervise(json.load(sys.stdin))
