"""How a try ended in; what the model is told, and what the circuit breaker learns, out."""

from typing import Any

from windlass.core.errors import ModelRetry
from windlass.core.messages import ResultKind, TextPart, ToolResult
from windlass.logs import get_logger
from windlass.tools.breaker import EndpointVerdict
from windlass.tools.function import Tool
from windlass.tools.results import error_message, error_text, to_content
from windlass.tools.tries import AttemptOutcome, ToolRaised, ToolReturned, ToolStopped, ToolTimedOut
from windlass.tools.unavailable import is_unavailable

_log = get_logger(__name__)


def is_worth_retrying(ended: AttemptOutcome) -> bool:
    """Whether the same call may work if it is tried again."""
    return isinstance(ended, ToolRaised) and is_unavailable(ended.error)


def breaker_verdict(ended: AttemptOutcome) -> EndpointVerdict:
    """What an end says of the endpoint."""
    match ended:
        case ToolReturned():
            return "worked"
        case ToolRaised(error):
            return "failed" if is_unavailable(error) else "nothing"
        case ToolTimedOut():
            return "failed"
        case ToolStopped():
            return "nothing"


def build_result(tool: Tool[..., Any], ended: AttemptOutcome, attempts: int) -> ToolResult:
    """The one result of a call, from how its last try ended."""
    match ended:
        case ToolReturned(ToolResult() as result):
            return result
        case ToolReturned(value):
            return _build_value_result(tool, value)
        case ToolRaised(ModelRetry() as retry):
            return ToolResult.from_text("error", error_message(retry) or "Try this in another way.")
        case ToolRaised(error):
            _log.warning("tool %s failed", tool.name, exc_info=error)
            tried = f" (tried {attempts} times)" if attempts > 1 else ""
            outage = is_unavailable(error)
            return ToolResult.from_text("error", f"{error_text(error)}{tried}", outage=outage)
        case ToolTimedOut(late):
            told = f"Timed out after {tool.timeout_s:g} s."
            return _build_late_result("timed_out", told, late, tool)
        case ToolStopped(late):
            return _build_late_result("cancelled", "Cancelled while it was running.", late, tool)


def _build_value_result(tool: Tool[..., Any], value: object) -> ToolResult:
    try:
        return ToolResult("value", to_content(value))
    except TypeError as error:
        _log.warning("the result of tool %s cannot be shown", tool.name, exc_info=True)
        return ToolResult.from_text(
            "error", f"{tool.name} was done, but its result cannot be shown: {error}"
        )


def _build_late_result(
    kind: ResultKind, told: str, late: ToolReturned | ToolRaised | None, tool: Tool[..., Any]
) -> ToolResult:
    """What is known of a call that was told to stop. It may not have done all of its work."""
    match late:
        case ToolReturned(value) if value is not None:
            seen = build_result(tool, ToolReturned(value), 1).content
            return ToolResult(
                kind, (TextPart(f"{told} While it was being stopped it returned: "), *seen)
            )
        case ToolReturned():
            return ToolResult.from_text(kind, f"{told} It stopped when it was told to.")
        case ToolRaised(error):
            return ToolResult.from_text(
                kind, f"{told} It failed while it was being stopped: {error_text(error)}"
            )
        case None:
            unsure = " Whether it took effect is not known." if tool.spec.effect != "read" else ""
            return ToolResult.from_text(kind, f"{told}{unsure}")


def circuit_open_text(tool: Tool[..., Any], wait_s: float) -> str:
    """What the model reads when a breaker keeps a call back."""
    again = (
        f"it is tried again in {wait_s:.0f} s" if wait_s else "it is being tried by another call"
    )
    return f"{tool.name} keeps failing and is switched off for now; {again}. Go on without it."
