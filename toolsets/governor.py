"""One rollout under a policy: every call asks here before it runs, and is charged here after.

Calls are counted when they are let through, before anything is awaited, so that calls side by side can't
spend the same budget twice.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from backends.base import Slot
from toolsets.command_paths import NamedPath, paths_in
from toolsets.command_policy import CommandGuard
from toolsets.path_policy import PathGuard
from toolsets.policy import Policy, ToolLimits
from toolsets.refusal import Refusal
from toolsets.shell_commands import analyse
from toolsets.tool import Tool
from trajectories.turn import Turn

WHERE_AM_I = 'builtin printf %s "$PWD"'


class Governor:
    """Checks and counts the calls of one attempt."""

    def __init__(self, policy: Policy):
        self._policy = policy
        self._commands = CommandGuard(policy.commands)
        self._paths = PathGuard(policy.paths, policy.commands.unclear == "refuse")
        self._calls: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tokens = 0
        self._cost_usd = 0.0
        self._tool_turns: set[int] = set()
        self._refusals: Counter[str] = Counter()
        self.exhausted = False
        """Whether a call was refused because a budget of the rollout is spent."""

    async def refusal(
        self, tool: Tool, arguments: Mapping[str, Any], turn: int, slot: Callable[[], Awaitable[Slot]]
    ) -> Refusal | None:
        """Return why a call must not run; None lets it run and counts it.

        Raises:
            SandboxError: The sandbox failed when it was asked what a path leads to.
        """
        refusal = self._spent(tool.name) or self._turn_over(turn)
        if refusal is None:
            self._calls[tool.name] += 1
            refusal = await self._forbidden(tool, arguments, slot)
            if refusal is not None:
                self._calls[tool.name] -= 1
        if refusal is not None:
            self._refusals[refusal.rule] += 1
            self.exhausted |= refusal.ends_rollout
        return refusal

    def timeout_s(self, tool_name: str, longest_s: float) -> float:
        """Return how long a call may take that was let through."""
        limits = self._limits(tool_name)
        bounds = [longest_s if limits.timeout_s is None else limits.timeout_s]
        if limits.seconds is not None:
            bounds.append(limits.seconds - self._seconds[tool_name])
        if self._policy.budget.seconds is not None:
            bounds.append(self._policy.budget.seconds - sum(self._seconds.values()))
        return max(min(bounds), 0.001)

    def charge_call(self, tool_name: str, seconds: float, cost_usd: float) -> None:
        """Count what a call took."""
        self._seconds[tool_name] += seconds
        self._cost_usd += cost_usd

    def charge_turn(self, turn: Turn) -> None:
        """Count what a model call took."""
        prompt, sampled = turn.prompt_tokens or 0, turn.completion_tokens or 0
        prices = self._policy.budget.prices
        self._tokens += prompt + sampled
        self._cost_usd += (prompt * prices.prompt + sampled * prices.sampled) / 1e6

    def report(self) -> dict[str, Any]:
        """Return what was spent and refused, for the record."""
        return {
            "calls": self._calls.total(),
            "seconds": sum(self._seconds.values()),
            "tokens": self._tokens,
            "cost_usd": self._cost_usd,
            "refusals": dict(self._refusals),
        }

    def _spent(self, tool_name: str) -> Refusal | None:
        budget, limits = self._policy.budget, self._limits(tool_name)
        spent = {
            "calls": (self._calls.total(), budget.calls),
            "seconds": (sum(self._seconds.values()), budget.seconds),
            "tokens": (self._tokens, budget.tokens),
            "cost_usd": (self._cost_usd, budget.cost_usd),
        }
        for what, (used, limit) in spent.items():
            if limit is not None and used >= limit:
                return Refusal(
                    f"budget.{what}", f"the budget of {limit:g} {what} is spent", ends_rollout=True
                )
        for what, used, limit in (
            ("calls", self._calls[tool_name], limits.calls),
            ("seconds", self._seconds[tool_name], limits.seconds),
        ):
            if limit is not None and used >= limit:
                reason = f"{tool_name} has had its {limit:g} {what}; use other tools or answer"
                return Refusal(
                    f"tools.{tool_name}.{what}", reason if limit else f"{tool_name} may not be used"
                )
        return None

    def _turn_over(self, turn: int) -> Refusal | None:
        most = self._policy.max_tool_turns
        if most is not None and turn not in self._tool_turns and len(self._tool_turns) >= most:
            return Refusal("max_tool_turns", f"all {most} turns with tools are used; answer without them")
        self._tool_turns.add(turn)
        return None

    async def _forbidden(
        self, tool: Tool, arguments: Mapping[str, Any], slot: Callable[[], Awaitable[Slot]]
    ) -> Refusal | None:
        if not self._commands.active and not self._paths.active:
            return None
        named: dict[str, list[NamedPath]] = {"terminal": [], "workspace": []}
        for name, governed in tool.governed.items():
            values = arguments[name] if isinstance(arguments[name], list) else [arguments[name]]
            for value in filter(None, values):
                if governed.use == "command":
                    analysis = analyse(value)
                    if refusal := self._commands.check(analysis):
                        return refusal
                    named["terminal"].extend(paths_in(analysis))
                else:
                    named[governed.base].append(NamedPath(value, governed.use))
        if not self._paths.active:
            return None
        for base, paths in named.items():
            if paths:
                sandbox = await slot()
                start = sandbox.workspace if base == "workspace" else await _where(sandbox)
                if refusal := await self._paths.check(paths, sandbox, start):
                    return refusal
        return None

    def _limits(self, tool_name: str) -> ToolLimits:
        return self._policy.tools.get(tool_name, ToolLimits())


async def _where(slot: Slot) -> str:
    """Return the folder of the agent's shell."""
    result = await slot.exec(WHERE_AM_I, timeout_s=10)
    return result.stdout or slot.workspace
