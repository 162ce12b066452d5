"""What toolsets need and do not find.

A set whose requirements are missing is left out with one logged line: an agent with fewer tools is better
than a run that does not start. What the host lacks is asked of the host, what the sandbox lacks of one
sandbox, once a run, before any prompt names a tool.
"""

import logging
from collections.abc import Iterable, Mapping

from backends.base import Slot, ToolBackend
from toolsets.registry import TOOLSETS, Toolset, expand

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 30.0


async def find_unavailable(
    names: Iterable[str], backend: ToolBackend, toolsets: Mapping[str, Toolset] = TOOLSETS
) -> dict[str, str]:
    """Return which of the named sets and their includes can't be used, and why; logs a line for each.

    A sandbox is started only where some set needs something of it.

    Raises:
        SandboxError: The sandbox failed.
    """
    wanted = expand(names, toolsets)
    missing = {name: reason for name in wanted if (reason := toolsets[name].check_requirements())}
    asking = [name for name in wanted if name not in missing and toolsets[name].needs]
    if asking:
        async with backend.acquire("requirements") as slot:
            missing |= await _missing_in(slot, {name: toolsets[name].needs for name in asking})
    for name, reason in missing.items():
        logger.warning("toolset %s is left out: %s", name, reason)
    return missing


async def _missing_in(slot: Slot, needs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Try each need's command once."""
    absent: dict[str, bool] = {}
    for command in {command for each in needs.values() for command in each.values()}:
        result = await slot.exec(command, timeout_s=PROBE_TIMEOUT_S, shell="control", isolated=True)
        absent[command] = result.exit_code != 0
    missing: dict[str, str] = {}
    for name, each in needs.items():
        lacking = [what for what, command in each.items() if absent[command]]
        if lacking:
            missing[name] = f"the sandbox has no {' and no '.join(lacking)}"
    return missing
