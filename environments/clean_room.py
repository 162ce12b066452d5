"""Judging in a sandbox the agent has never been in.

Whatever an agent can leave behind in its sandbox (a result file, a patched interpreter, a shell function, a
process that waits for the tests to arrive) can decide a reward that is computed there. So declared files are
taken out, the sandbox ends, and `compute_reward` looks at a fresh one that holds those files and nothing
else of the agent's.
"""

import errno
import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import ClassVar

from backends.base import Slot
from environments.agent_loop import Transcript
from environments.artefacts import Artefacts, ArtefactsRefused
from environments.base import BaseAgentEnv
from environments.items import TaskItem
from environments.reward import Reward
from environments.workspace import Workspace

logger = logging.getLogger(__name__)

NEVER_CODE = (".git", "__pycache__", "*.py[co]", "*.pth", "sitecustomize.py", "usercustomize.py")
"""Names that git and Python act on unasked; a judge has no use for an agent's version of them."""


MISFITS = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY)
"""How a workspace refuses a file in the place of a folder, or the other way round."""


class CleanRoomEnv(BaseAgentEnv):
    """An environment whose ``compute_reward`` runs on a fresh sandbox; else like any other.

    The agent's sandbox is released before the fresh one is acquired, so a rollout never holds two and a pool
    full of rollouts cannot wait for itself. What the agent left and can't be taken (too much of it, for one)
    is the agent's own doing: reward 0.
    """

    taken: ClassVar[Artefacts] = Artefacts(without=NEVER_CODE)
    """What is taken from the agent's workspace."""

    def artefacts(self, item: TaskItem) -> Artefacts:
        """Return what is taken for this item; by default the same for all."""
        return self.taken

    async def setup_room(self, item: TaskItem, room: Slot) -> None:
        """Prepare the judge's sandbox before the artefacts get there; by default as the agent's was.

        What only the judge may see belongs here. Where artefacts are to leave it alone, `artefacts` must be
        without it.
        """
        await self.setup_workspace(item, room)

    async def score(self, item: TaskItem, result: Transcript, workspace: Workspace) -> Reward:
        """Take the artefacts, release the agent's sandbox, and run `compute_reward` on a fresh one."""
        with tempfile.TemporaryDirectory(prefix="lachesis-") as folder:
            try:
                await self.artefacts(item).collect(
                    await workspace.slot(), Path(folder), self.config.reward_timeout_s
                )
                await workspace.release()
                async with workspace.another("judge", partial(self._furnish, item, Path(folder))) as room:
                    await room.slot()  # waits for its turn, which is not the reward's time
                    return await super().score(item, result, room)
            except ArtefactsRefused as refusal:
                logger.info("artefacts refused: %s", refusal)
                return Reward(0.0, metrics={"artefacts_refused": 1.0})

    async def _furnish(self, item: TaskItem, folder: Path, room: Slot) -> None:
        """Put the artefacts in the place of what stood there at the start."""
        await self.setup_room(item, room)
        await self.artefacts(item).clear(room, self.config.reward_timeout_s)
        try:
            await room.upload(folder, ".")
        except OSError as error:
            if error.errno in MISFITS:
                raise ArtefactsRefused(f"a file stands where the judge has a folder: {error}") from error
            raise
