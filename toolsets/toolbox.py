"""The tools of one rollout: every call of the agent passes through here and gets exactly one answer.

What is wrong with a call is told to the model in the tool role; only a failure of the world raises. Calls
that share the sandbox run in the order the model wrote them, since a later one may build on an earlier one;
tools on the host run alongside. A call runs at most once: asked again for the same turn, the toolbox gives
the answer it gave, and a call that was interrupted is not begun a second time.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from backends.base import Slot
from toolsets.governor import Governor
from toolsets.policy import Policy
from toolsets.results import FOLDER, KEPT_CHARS, as_text, cut, longest_text, preview
from toolsets.tool import ArgumentsRefused, Tool, ToolCallContext, ToolResult
from trajectories.errors import RolloutError, ToolError
from trajectories.messages import FLAGGED, Message, ParseError, ToolCall, ToolSchema
from trajectories.turn import ToolExecution

GRACE_S = 5.0
"""How much longer than its limit a tool may take to stop by itself before it is cancelled."""

NOT_ANSWERED = FLAGGED | {"in_reasoning"}
"""Parse errors that need no answer of their own: the flagged call is answered, a draft was never sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one call or malformed block."""

    message: Message
    execution: ToolExecution | None
    """None where nothing was run because there was no call to run."""


class Toolbox:
    """Runs the calls of one rollout attempt."""

    def __init__(
        self,
        tools: list[Tool],
        *,
        task_id: str,
        key: str,
        slot: Callable[[], Awaitable[Slot]],
        timeout_s: float,
        max_result_chars: int,
        policy: Policy = Policy(),  # noqa: B008 - frozen
    ):
        self.schemas: list[ToolSchema] = [tool.schema for tool in tools]
        self._tools = {tool.name: tool for tool in tools}
        self._task_id = task_id
        self._key = key
        self._slot = slot
        self._timeout_s = timeout_s
        self._max_result_chars = max_result_chars
        self.governor = Governor(policy)
        self._memory: dict[str, Any] = {}
        self._begun: dict[str, Answer | None] = {}
        """By key; None while the call runs, and for ever if it was interrupted."""

    async def answer(self, message: Message, turn: int) -> list[Answer]:
        """Run the calls of an assistant message; answers stand in the order the model wrote the calls.

        Raises:
            RolloutError: The world failed, or a call of this turn was interrupted before; the calls still
                running are cancelled.
        """
        blocks = [*message.tool_calls, *(error for error in message.errors if error.kind not in NOT_ANSWERED)]
        blocks.sort(key=lambda block: block.span or (0, 0))
        answers: list[Answer | None] = [None] * len(blocks)

        async def run(positions: list[int]) -> None:
            for position in positions:
                answers[position] = await self._once(blocks[position], turn, position)

        on_host = [[position] for position, block in enumerate(blocks) if self._runs_on_host(block)]
        in_slot = [position for position, block in enumerate(blocks) if not self._runs_on_host(block)]
        try:
            async with asyncio.TaskGroup() as group:
                for positions in [in_slot, *on_host]:
                    group.create_task(run(positions))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [answer for answer in answers if answer is not None]

    async def _once(self, block: ToolCall | ParseError, turn: int, position: int) -> Answer:
        key = f"{self._key}/{turn}/{position}"
        if key in self._begun:
            answer = self._begun[key]
            if answer is None:
                raise ToolError(
                    f"call {key} was begun before and what it did is unknown; it is not run again"
                )
            return answer
        self._begun[key] = None
        answer = self._begun[key] = await self._answer(block, key, turn)
        return answer

    async def _answer(self, block: ToolCall | ParseError, key: str, turn: int) -> Answer:
        if isinstance(block, ParseError):
            text = preview(ToolResult.failed(block.message).content, self._max_result_chars)
            return Answer(Message.tool(text, call_id=None, name=None), None)
        started = time.perf_counter()
        result = await self._result(block, key, turn)
        execution = ToolExecution(
            call_id=block.id,
            name=block.name,
            idempotency_key=key,
            success=result.success,
            duration_s=time.perf_counter() - started,
            error=result.error,
            refused_by=result.refused_by,
            files_changed=result.files_changed,
        )
        text = await self._bounded(result.content, key)
        return Answer(Message.tool(text, call_id=block.id, name=block.name), execution)

    async def _bounded(self, content: Any, key: str) -> str:
        """Return what the model is shown; if that is not all, the rest is kept where it can be read."""
        text = as_text(content)
        if len(text) <= self._max_result_chars:
            return text
        kept_at = None
        if any(tool.runs_in == "slot" for tool in self._tools.values()):
            turn, position = key.split("/")[-2:]
            kept_at = f"{FOLDER}/{turn}-{position}.txt"
            whole = cut(longest_text(content), KEPT_CHARS).encode("utf-8", "surrogatepass")
            try:
                await (await self._slot()).write_file(kept_at, whole)
            except OSError:  # the sandbox is full
                kept_at = None
        return preview(content, self._max_result_chars, kept_at)

    async def _result(self, call: ToolCall, key: str, turn: int) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            near = get_close_matches(call.name, self._tools, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self._tools) or 'none'}"
            return ToolResult.failed(f"no tool is named {call.name!r}; {hint}")
        try:
            arguments = tool.validated(call.arguments)
        except ArgumentsRefused as refusal:
            return ToolResult.failed(str(refusal))
        if refused := await self.governor.refusal(tool, arguments, turn, self._slot):
            return replace(ToolResult.failed(f"refused: {refused.reason}"), refused_by=refused.rule)
        return await self._run(tool, arguments, key)

    async def _run(self, tool: Tool, arguments: dict[str, Any], key: str) -> ToolResult:
        slot = await self._slot() if tool.runs_in == "slot" else None
        timeout_s = self.governor.timeout_s(tool.name, self._timeout_s)
        context = ToolCallContext(self._task_id, slot, timeout_s, key, self._max_result_chars, self._memory)
        cost_usd = 0.0
        try:
            async with asyncio.timeout(timeout_s + GRACE_S) as limit:
                result = await tool(context, arguments)
                cost_usd = result.cost_usd
                return result
        except RolloutError:
            raise
        except Exception as error:
            if limit.expired():
                return ToolResult.failed(f"{tool.name} did not finish within {timeout_s:g} s")
            raise ToolError(f"{tool.name} raised {type(error).__name__}: {error}") from error
        finally:
            self.governor.charge_call(tool.name, time.monotonic() - context.started, cost_usd)

    def _runs_on_host(self, block: ToolCall | ParseError) -> bool:
        tool = self._tools.get(block.name) if isinstance(block, ToolCall) else None
        return tool is not None and tool.runs_in == "host"
