"""Turn the outcome of an attempt into a result for the model and a verdict for the breaker."""

import asyncio
from typing import Any

from windlass.core.errors import ModelRetry
from windlass.core.messages import ResultKind, TextPart, ToolResult
from windlass.core.text_clip import printable_line
from windlass.logs import get_logger
from windlass.tools.attempts import (
    AttemptOutcome,
    ToolRaised,
    ToolReturned,
    ToolStopped,
    ToolTimedOut,
)
from windlass.tools.breaker import EndpointVerdict, is_unavailable
from windlass.tools.function import Tool
from windlass.tools.results import error_message, error_text, is_large, strip_result, to_content

_log = get_logger(__name__)


def log_tool_error(tool: str, event: str, error: BaseException) -> None:
    """Log what went wrong in one printable line; the traceback only for those who debug.

    Without handlers, a warning goes to the terminal, and the message of an exception may be the
    text of a stranger.
    """
    _log.warning("tool %s %s: %s", tool, event, printable_line(error_text(error)))
    _log.debug("tool %s %s", tool, event, exc_info=error)


def raise_program_exit(outcome: AttemptOutcome) -> None:
    """Raise what a tool raised to end the program: it is not for the model."""
    match outcome:
        case ToolRaised(KeyboardInterrupt() | SystemExit() as error):
            raise error
        case ToolTimedOut(ToolRaised(KeyboardInterrupt() | SystemExit() as error)):
            raise error
        case _:
            pass


def breaker_verdict(outcome: AttemptOutcome) -> EndpointVerdict:
    """Return what an outcome says about the endpoint."""
    match outcome:
        case ToolReturned():
            return "worked"
        case ToolRaised(error):
            return "failed" if is_unavailable(error) else "nothing"
        case ToolTimedOut():
            return "failed"
        case ToolStopped():
            return "nothing"


def build_result(tool: Tool[..., Any], outcome: AttemptOutcome, attempts: int) -> ToolResult:
    """Build the one result of a call from the outcome of its last attempt."""
    match outcome:
        case ToolReturned(ToolResult() as result):
            return strip_result(result)
        case ToolReturned(value):
            try:
                return ToolResult("value", to_content(value))
            except TypeError as error:
                log_tool_error(tool.name, "returned a result that cannot be shown", error)
                text = f"{tool.name} ran, but its result cannot be shown: {error}"
                return ToolResult.from_text("error", text)
        case ToolRaised(ModelRetry() as retry):
            return ToolResult.from_text("error", error_message(retry) or "Try another way.")
        case ToolRaised(error):
            text = error_text(error)
            log_tool_error(tool.name, "failed", error)
            if attempts > 1:
                text += f" (tried {attempts} times)"
            return ToolResult.from_text("error", text, outage=is_unavailable(error))
        case ToolTimedOut(late_outcome):
            text = f"The tool timed out after {tool.timeout_s:g} s."
            if outcome.is_running:
                text += " It did not stop when it was asked to and may still be running."
            return _build_late_result("timed_out", text, late_outcome, tool)
        case ToolStopped(late_outcome):
            text = "The tool was cancelled while it was running."
            return _build_late_result("cancelled", text, late_outcome, tool)


async def build_result_off_loop(
    tool: Tool[..., Any], outcome: AttemptOutcome, attempts: int
) -> ToolResult:
    """Do the same as `build_result`. A large value is turned into text in a thread."""
    if isinstance(outcome, ToolReturned) and is_large(outcome.value):
        return await asyncio.to_thread(build_result, tool, outcome, attempts)
    return build_result(tool, outcome, attempts)


def _build_late_result(
    kind: ResultKind,
    text: str,
    late_outcome: ToolReturned | ToolRaised | None,
    tool: Tool[..., Any],
) -> ToolResult:
    """Build the result of a call that was asked to stop. It may have done a part of its work."""
    match late_outcome:
        case ToolReturned(value) if value is not None:
            content = build_result(tool, ToolReturned(value), 1).content
            note = TextPart(f"{text} While it was being stopped, it returned: ")
            return ToolResult(kind, (note, *content))
        case ToolReturned():
            return ToolResult.from_text(kind, f"{text} It stopped when it was asked to.")
        case ToolRaised(error):
            return ToolResult.from_text(
                kind, f"{text} While it was being stopped, it failed: {error_text(error)}"
            )
        case None:
            if tool.spec.effect != "read":
                text += " Whether it took effect is not known."
            return ToolResult.from_text(kind, text)


def circuit_open_text(tool: Tool[..., Any], wait_s: float) -> str:
    """Return what the model reads when the breaker does not admit a call."""
    following = "another call is testing it now"
    if wait_s:
        following = f"the next attempt is possible in {wait_s:.0f} s"
    return (
        f"{tool.name} keeps failing and is switched off for now; {following}. Continue without it."
    )
