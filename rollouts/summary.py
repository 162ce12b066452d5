"""What a run came to, in one table."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from rich.table import Table

from trajectories.trajectory import Group, Trajectory


@dataclass(slots=True)
class Summary:
    """Sums over the trajectories of a run; holds none of them."""

    rollouts: int = 0
    reward_sum: float = 0.0
    scored: int = 0
    groups: int = 0
    complete_groups: int = 0
    mixed_groups: int = 0
    """Groups whose rewards differ: the ones a group-relative trainer learns from."""
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    refused_calls: int = 0
    malformed_calls: int = 0
    stop_reasons: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, group: Group) -> None:
        """Add one group's rollouts."""
        self.groups += 1
        self.complete_groups += group.complete
        self.mixed_groups += len(set(group.rewards)) > 1
        for trajectory in group.trajectories:
            self._add(trajectory)

    def _add(self, trajectory: Trajectory) -> None:
        self.rollouts += 1
        if trajectory.reward is not None:
            self.scored += 1
            self.reward_sum += trajectory.reward
        self.stop_reasons[trajectory.stop_reason] += 1
        if trajectory.error:
            self.failures[f"{trajectory.error.boundary}: {trajectory.error.type}"] += 1
        for turn in trajectory.turns:
            self.turns += 1
            self.prompt_tokens += turn.prompt_tokens or 0
            self.completion_tokens += turn.completion_tokens or 0
            self.tool_calls += len(turn.tool_executions)
            refused = sum(execution.refused_by is not None for execution in turn.tool_executions)
            self.refused_calls += refused
            self.tool_errors += sum(not each.success for each in turn.tool_executions) - refused
            self.malformed_calls += len(turn.message.errors)
        timings = trajectory.timings
        self.seconds["setup"] += timings.setup_s
        self.seconds["model"] += timings.model_s
        self.seconds["tools"] += timings.tools_s
        self.seconds["reward"] += timings.reward_s

    def table(self, title: str) -> Table:
        """Lay the figures out."""
        table = Table(title=title, show_header=False)
        table.add_column(style="bold")
        table.add_column()
        mean = f"{self.reward_sum / self.scored:.3f}" if self.scored else "none scored"
        outcomes = f"{self.tool_errors} failed"
        if self.refused_calls:
            outcomes += f", {self.refused_calls} refused"
        rows = {
            "rollouts": f"{self.rollouts} ({self.scored} scored)",
            "groups": f"{self.groups} ({self.complete_groups} complete, {self.mixed_groups} of mixed reward)",
            "mean reward": mean,
            "stop reasons": _counts(self.stop_reasons),
            "failures": _counts(self.failures) or "none",
            "turns": f"{self.turns}",
            "tokens": f"{self.prompt_tokens} prompt, {self.completion_tokens} sampled",
            "tool calls": f"{self.tool_calls} ({outcomes}), {self.malformed_calls} malformed",
            "time, summed": ", ".join(f"{phase} {spent:.1f} s" for phase, spent in self.seconds.items()),
        }
        for name, value in rows.items():
            table.add_row(name, value)
        return table


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common())
