"""Repository tasks: edit the code until the tests pass that the agent has not seen.

Ten small repositories come with it. Rows in the form of SWE-bench are read with ``--env.dataset``, from a
JSON Lines file or by `datasets`; their code comes from an image (``--env.image``) or from clones on this host
(``--env.repositories``). The agent gets the repository as a single commit, so that no later history can tell
the solution. It is judged in a clean room: its files are put into a fresh checkout, the tests and pytest's
settings are the judge's own, and what counts is which tests pass, see `pytest_verdict`.
"""

import tempfile
from pathlib import Path

from pydantic import Field, model_validator

from backends.base import ExecutionResult, Slot
from environments.agent_loop import Transcript
from environments.artefacts import Artefacts
from environments.clean_room import NEVER_CODE, CleanRoomEnv
from environments.config import EnvConfig
from environments.items import TaskItem
from environments.pytest_verdict import GRACE_S, run_tests
from environments.reward import Reward, ToolContext
from environments.swe_checkout import check_out, find_code
from environments.swe_rows import SweItem, shipped_tasks
from trajectories.errors import ConfigError, RewardError, SandboxError

PROMPT = """\
The current directory is a git repository. Resolve the issue below by changing its code. Tests that you do \
not see will judge the result; changes to existing tests and to the configuration of pytest do not count.

{problem_statement}"""

COMMIT = """\
rm -rf .git && git init -q -b main && git add -A &&
git -c user.name=maintainer -c user.email=maintainer@localhost commit -q --no-verify -m 'As it stands'"""


class SweEnvConfig(EnvConfig):
    """Settings of the repository tasks."""

    max_turns: int = Field(default=40, ge=1)
    """Most model calls in a rollout."""
    reward_timeout_s: float = Field(default=300.0, gt=0)
    """Longest reward computation; a longer one fails the attempt."""
    tests_timeout_s: float = Field(default=120.0, gt=0)
    """Longest run of the judge's tests; what has not passed by then counts as failed."""
    image: str | None = None
    """Image of rows that have none of their own, such as `rootfs:/images/{instance_id}.tar`; names of the
    row's fields in braces are replaced. Its workspace must be the repository."""
    repositories: Path | None = None
    """Folder of git clones, `OWNER/NAME` below it, that rows without an image are checked out from."""
    python: str = "python3"
    """The interpreter that tests run with in the sandbox; it must have pytest."""
    pytest_options: list[str] = Field(default_factory=list)
    """Further options for the judge's tests, such as `-p` with a plugin; plugins are not loaded by
    themselves."""

    @model_validator(mode="after")
    def _judging_ends_in_time(self) -> "SweEnvConfig":
        if self.tests_timeout_s + 2 * GRACE_S > self.reward_timeout_s:
            raise ValueError(f"reward_timeout_s must exceed tests_timeout_s by {2 * GRACE_S:g} s")
        return self


class SweEnv(CleanRoomEnv):
    """Issues in Python repositories, resolved where FAIL_TO_PASS and PASS_TO_PASS all pass."""

    name = "swe"
    toolsets = ("terminal", "files", "git", "tests")
    config_class = SweEnvConfig
    item_model = SweItem
    config: SweEnvConfig

    async def setup(self) -> None:
        """Take the shipped tasks, or load the dataset's."""
        if self.config.dataset is None:
            self.items = shipped_tasks()
            return
        await super().setup()
        for item in self.items:
            item.setdefault("id", item["instance_id"])
            if self.image(item) is None:
                find_code(SweItem.model_validate(item), self.config.repositories)

    def image(self, item: TaskItem) -> str | None:
        """Return the row's own image, or the configured one."""
        row = SweItem.model_validate(item)
        if row.image or row.files is not None or self.config.image is None:
            return row.image
        try:
            return self.config.image.format(**item)
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigError(f"env.image: {self.config.image!r}: rows have no field {error}") from error

    def format_prompt(self, item: TaskItem) -> str:
        """State the issue."""
        return PROMPT.format(problem_statement=item["problem_statement"])

    async def setup_workspace(self, item: TaskItem, slot: Slot) -> None:
        """Put the repository there, as one commit."""
        row = SweItem.model_validate(item)
        if self.image(item) is None:
            with tempfile.TemporaryDirectory(prefix="lachesis-") as folder:
                await check_out(row, self.config.repositories, Path(folder))
                await slot.upload(Path(folder), ".")
        committed = await slot.exec(COMMIT, shell="control", isolated=True)
        if committed.exit_code != 0:
            raise SandboxError(f"{row.instance_id}: no commit could be made: {committed.stderr.strip()}")

    def artefacts(self, item: TaskItem) -> Artefacts:
        """Take all files but tests and what configures them."""
        return Artefacts(without=[*NEVER_CODE, *SweItem.model_validate(item).judges_own])

    async def setup_room(self, item: TaskItem, room: Slot) -> None:
        """Put the repository there, with the judge's tests."""
        await self.setup_workspace(item, room)
        row = SweItem.model_validate(item)
        if row.test_patch:
            patched = await apply_patch(room, row.test_patch)
            if patched.exit_code != 0:
                raise RewardError(f"{row.instance_id}: test_patch: {patched.stderr.strip()}", retryable=False)

    async def compute_reward(self, item: TaskItem, result: Transcript, ctx: ToolContext) -> Reward:
        """Give 1 where every test passes that should, else 0."""
        row = SweItem.model_validate(item)
        verdict = await run_tests(
            ctx,
            [*row.FAIL_TO_PASS, *row.PASS_TO_PASS],
            timeout_s=self.config.tests_timeout_s,
            watched=row.judges_own,
            import_paths=[*row.import_paths, "."],
            options=self.config.pytest_options,
            python=self.config.python,
        )
        shares = {
            "fail_to_pass": verdict.share(row.FAIL_TO_PASS),
            "pass_to_pass": verdict.share(row.PASS_TO_PASS),
        }
        metrics = {**shares, "irregular_test_files": float(len(verdict.notes))}
        return Reward(float(all(share == 1 for share in shares.values())), metrics=metrics)


async def apply_patch(slot: Slot, patch: str) -> ExecutionResult:
    """Apply a diff to the workspace, outside of the agent's shells."""
    return await slot.exec(
        "git apply --whitespace=nowarn -", stdin=patch.encode(), shell="control", isolated=True
    )


if __name__ == "__main__":
    SweEnv.cli()
