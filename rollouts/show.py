"""One trajectory, laid out to be read."""

from rich.console import Group as Renderables
from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from trajectories.messages import Message
from trajectories.trajectory import Trajectory

STYLES = {"system": "dim", "user": "cyan", "assistant": "green", "tool": "yellow"}


def readable(trajectory: Trajectory) -> RenderableType:
    """Lay out the conversation, without the messages that only steered it."""
    reward = "not scored" if trajectory.reward is None else f"reward {trajectory.reward:g}"
    title = f"{trajectory.trajectory_id} · {reward} · {trajectory.stop_reason}"
    panels = [
        _panel(message)
        for index, message in enumerate(trajectory.messages)
        if index not in trajectory.ephemeral
    ]
    return Renderables(Text(title, style="bold"), *panels)


def _panel(message: Message) -> Panel:
    style = STYLES[message.role]
    title = f"{message.role}: {message.name}" if message.name else message.role
    return Panel(Text(_body(message)), title=title, title_align="left", border_style=style)


def _body(message: Message) -> str:
    parts = [f"(thinks) {message.reasoning}"] if message.reasoning else []
    parts += [message.content] if message.content else []
    parts += [f"{call.name}({_arguments(call.arguments)})" for call in message.tool_calls]
    parts += [f"malformed ({error.kind}): {error.raw}" for error in message.errors]
    return "\n".join(parts)


def _arguments(arguments: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
