"""A pytest plugin for Atropos' own API tests: where they start their server, ours is started.

Loaded in the interpreter that has atroposlib; the tests themselves stay as they are.
"""

import os
import subprocess


class _Popen(subprocess.Popen):
    def __init__(self, args, **options):
        if "atroposlib.cli.run_api" in args:
            address = args[args.index("--host") :]
            store = os.path.join(os.environ["ATROPOS_TEST_FOLDER"], "rollouts.db")
            server = [os.environ["ROLLOUT_API_PYTHON"], "-m", "rollouts.api", "--allow_reset", "true"]
            args = [*server, "--store", store, *address]
            options["cwd"] = os.environ["ATROPOS_TEST_FOLDER"]
            options["env"] = {**os.environ, "PYTHONPATH": os.environ["ROLLOUT_API_ROOT"]}
        super().__init__(args, **options)


subprocess.Popen = _Popen
