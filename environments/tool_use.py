"""How a rollout used its tools, as metrics and as scores of turns."""

from environments.agent_loop import Transcript
from environments.items import TaskItem
from trajectories.messages import FLAGGED
from trajectories.turn import Turn


def tool_use(result: Transcript) -> dict[str, float]:
    """Count turns, calls, failed calls, and blocks that were no readable call."""
    executions = [execution for turn in result.turns for execution in turn.tool_executions]
    malformed = sum(error.kind not in FLAGGED for message in result.messages for error in message.errors)
    return {
        "turns": float(len(result.turns)),
        "tool_calls": float(len(executions)),
        "failed_tool_calls": float(sum(not execution.success for execution in executions)),
        "malformed_tool_calls": float(malformed),
    }


def calls_succeed(item: TaskItem, turn: Turn) -> float:
    """Score a turn with the share of its calls that succeeded; one without calls with 0."""
    calls = turn.tool_executions
    return sum(call.success for call in calls) / len(calls) if calls else 0.0


def calls_well_formed(item: TaskItem, turn: Turn) -> float:
    """Score a turn with 1 where every call could be read and fits its tool, else 0."""
    return float(not turn.message.errors)
