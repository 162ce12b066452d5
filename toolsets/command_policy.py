"""Commands against the rules: blocked, allowed, or unclear."""

from toolsets.command_rules import CommandRule, Fit
from toolsets.policy import CommandPolicy
from toolsets.refusal import Refusal
from toolsets.shell_commands import Analysis
from toolsets.shell_syntax import SimpleCommand


class CommandGuard:
    """The rules of one policy, read once."""

    def __init__(self, policy: CommandPolicy):
        self._block = [CommandRule.read(text) for text in policy.block]
        self._allow = None if policy.allow is None else [CommandRule.read(text) for text in policy.allow]
        self.active = bool(self._block) or self._allow is not None
        """Whether there is anything to check."""
        self._refuse_unclear = self.active and policy.unclear == "refuse"

    def check(self, analysis: Analysis) -> Refusal | None:
        """Return why a command line is refused; None where it may run."""
        doubts = list(analysis.unclear)
        for command in analysis.commands:
            for rule in self._block:
                fit = rule.fit(command)
                if fit is Fit.YES:
                    return Refusal(
                        f"commands.block: {rule.text}", f"`{rule.text}` is blocked, found `{command}`"
                    )
                if fit is Fit.MAYBE:
                    doubts.append(f"whether `{command}` is `{rule.text}`, which is blocked")
        for command in analysis.commands:
            if refusal := self._not_allowed(command):
                return refusal
        if doubts and self._refuse_unclear:
            return Refusal(
                "commands.unclear",
                f"it is unclear: {doubts[0]}; write the command out, without variables or piped scripts",
            )
        return None

    def _not_allowed(self, command: SimpleCommand) -> Refusal | None:
        if self._allow is None:
            return None
        fits = {rule.fit(command) for rule in self._allow}
        if Fit.YES in fits or command.words[0].dynamic or (Fit.MAYBE in fits and not self._refuse_unclear):
            return None  # a program that is not known is unclear, not forbidden
        allowed = ", ".join(f"`{rule.text}`" for rule in self._allow)
        return Refusal("commands.allow", f"`{command}` is not among the allowed commands: {allowed}")
