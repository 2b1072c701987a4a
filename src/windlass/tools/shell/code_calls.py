"""Code that calls tools: what it calls, and what is told about it after an interruption.

The law: the session of its calls begins with the first one. What their results brought along is
brought along by the result of the code.
"""

from collections.abc import Collection

import msgspec

from windlass.core.messages import CallOutcome, TextPart, ToolResult
from windlass.core.text_clip import clip_line
from windlass.ports import CallerRun, NestedCall, NestedCalls, NestingCall
from windlass.tools.function import UNKNOWN
from windlass.tools.run_context import RunContext
from windlass.tools.shell.python_process import Interpreter, WorkerCall, WorkerReply

LISTED_MAX = 50
"""Calls that a report about interrupted code lists; the last ones."""
ARGUMENTS_CHARS_MAX = 200


class CodeSession:
    """One piece of code, with the calls that it makes."""

    def __init__(
        self, interpreter: Interpreter, nested: NestedCalls | None, calls_max: int
    ) -> None:
        self._interpreter = interpreter
        self._nested = nested
        self._calls_left = calls_max
        self._calls_max = calls_max
        self._reply: WorkerReply | None = None
        self._first_call: WorkerCall | None = None
        self.has_called = False

    async def run(self, code: str) -> WorkerReply | None:
        """Run the code and return its reply; None if the process died."""
        tools = self._nested.specs if self._nested else ()
        await self._interpreter.send_code(code, tools)
        message = await self._interpreter.read_message()
        if not isinstance(message, WorkerCall):
            return message
        if self._nested is None:
            # Only code that was not given tools can get here, by a file that it wrote itself.
            return WorkerReply("This code may not call tools.", failed=True)
        # The session of the calls begins with the first one: most code makes none.
        self._first_call = message
        self.has_called = True
        await self._nested.run(self)
        return self._reply

    async def next_call(self, last: ToolResult | None) -> NestedCall | None:
        """Give the code the result of its last call; return its next one, or None at its end."""
        message = self._first_call
        self._first_call = None
        if last is not None:
            message = await self._exchange(last)
        while isinstance(message, WorkerCall) and (refusal := self._refuse_call(message)):
            message = await self._exchange(ToolResult.from_text("error", refusal))
        if isinstance(message, WorkerCall):
            self._calls_left -= 1
            return NestedCall(message.name, bytes(message.arguments).decode(errors="replace"))
        self._reply = message
        return None

    def _refuse_call(self, call: WorkerCall) -> str:
        """Return why a call is not even judged; empty if it is."""
        if not call.name:
            return "The call cannot be read, or its arguments are too long."
        if self._calls_left <= 0:
            return f"This code has made {self._calls_max} calls, and no more are allowed."
        return ""

    async def _exchange(self, result: ToolResult) -> WorkerReply | WorkerCall | None:
        await self._interpreter.send_result(result)
        return await self._interpreter.read_message()


def nest_calls(run: CallerRun, context: RunContext, code: str) -> NestedCalls | None:
    if run.world.nest_calls is None or context.call is None:
        return None
    nesting = NestingCall(context.call, context.call_id, context.tool_name, code)
    return run.world.nest_calls(run, nesting)


async def reconcile_code(
    run: CallerRun, context: RunContext, code: str, timeout_s: float | None = None
) -> object:
    """Say what the code of an interrupted call had called, and close the session of its calls.

    If it had done something by then, nobody is asked whether it should all be done again.
    """
    del timeout_s
    nested = nest_calls(run, context, code)
    if nested is None:
        return UNKNOWN
    await nested.end()
    outcome = await nested.read_outcome()
    effects = {spec.name for spec in nested.specs if spec.effect != "read"}
    if not any(one.call.name in effects for one in outcome.calls if one.call.id in outcome.started):
        return UNKNOWN
    text = "Interrupted: the code was running. It is not known what it did besides its calls."
    return await add_nested(ToolResult.from_text("unknown", text), nested, lists_calls=True)


async def add_nested(
    result: ToolResult, nested: NestedCalls | None, *, lists_calls: bool = False
) -> ToolResult:
    """Return the result of code with what its calls brought along, and with what they did."""
    if nested is None:
        return result
    outcome = await nested.read_outcome()
    content = result.content
    if lists_calls or result.kind == "timed_out":
        lines = [_describe_call(one, outcome.started) for one in outcome.calls[-LISTED_MAX:]]
        note = "\n".join([f"Calls that it had made ({len(outcome.calls)} in all):", *lines])
        content = (*content, TextPart(f"\n{note}"))
    labels = tuple(sorted(outcome.labels))
    return msgspec.structs.replace(result, content=content, labels=labels)


def _describe_call(one: CallOutcome, started: Collection[str]) -> str:
    done = {"value": "done", "cancelled": "unknown whether it took effect"}
    what = done.get(one.result.kind, one.result.kind)
    if one.result.kind == "cancelled" and one.call.id not in started:
        what = "not started"
    return f"- {one.call.name}({clip_line(one.call.arguments, ARGUMENTS_CHARS_MAX)}): {what}"
