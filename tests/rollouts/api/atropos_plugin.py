"""A pytest plugin for Atropos' own API tests: where they start their server, ours is started, on a free port.

Loaded in the interpreter that has atroposlib; the tests themselves stay as they are. They give a server ten
seconds to start, which on a busy host is not enough, and know only port 8000, which may be another's.
"""

import os
import subprocess
import time

import requests
from requests.adapters import HTTPAdapter

PORT = os.environ["ROLLOUT_API_PORT"]
send = HTTPAdapter.send


def _send(self, request, **options):
    request.url = request.url.replace("localhost:8000", f"localhost:{PORT}")
    return send(self, request, **options)


class _Popen(subprocess.Popen):
    def __init__(self, args, **options):
        ours = "atroposlib.cli.run_api" in args
        if ours:
            store = os.path.join(os.environ["ATROPOS_TEST_FOLDER"], "rollouts.db")
            server = [os.environ["ROLLOUT_API_PYTHON"], "-m", "rollouts.api", "--allow_reset", "true"]
            args = [*server, "--store", store, "--host", "localhost", "--port", PORT]
            options["cwd"] = os.environ["ATROPOS_TEST_FOLDER"]
            options["env"] = {**os.environ, "PYTHONPATH": os.environ["ROLLOUT_API_ROOT"]}
        super().__init__(args, **options)
        while ours and self.poll() is None and not _answers():
            time.sleep(0.1)


def _answers() -> bool:
    try:
        return requests.get(f"http://localhost:{PORT}/info").ok
    except requests.exceptions.ConnectionError:
        return False


HTTPAdapter.send = _send
subprocess.Popen = _Popen
