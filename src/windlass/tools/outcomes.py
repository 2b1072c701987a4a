"""How a try ended in; what the model is told, and what the circuit breaker learns, out."""

from typing import Any

from windlass.core.errors import ModelRetry
from windlass.core.messages import Result, ResultKind, Text
from windlass.logs import logger
from windlass.tools.breaker import Verdict
from windlass.tools.function import Tool
from windlass.tools.results import error_text, message_of, shown
from windlass.tools.tries import Ended, Expired, Raised, Returned, Stopped
from windlass.tools.unavailable import is_unavailable

_log = logger(__name__)


def may_help(ended: Ended) -> bool:
    """Whether the same call may work if it is tried again."""
    return isinstance(ended, Raised) and is_unavailable(ended.error)


def verdict_on(ended: Ended) -> Verdict:
    """What an end says of the endpoint."""
    match ended:
        case Returned():
            return "worked"
        case Raised(error):
            return "failed" if is_unavailable(error) else "nothing"
        case Expired():
            return "failed"
        case Stopped():
            return "nothing"


def result_of(tool: Tool[..., Any], ended: Ended, attempts: int) -> Result:
    """The one result of a call, from how its last try ended."""
    match ended:
        case Returned(Result() as result):
            return result
        case Returned(value):
            return _shown(tool, value)
        case Raised(ModelRetry() as retry):
            return Result.say("error", message_of(retry) or "Try this in another way.")
        case Raised(error):
            _log.warning("tool %s failed", tool.name, exc_info=error)
            tried = f" (tried {attempts} times)" if attempts > 1 else ""
            outage = is_unavailable(error)
            return Result.say("error", f"{error_text(error)}{tried}", outage=outage)
        case Expired(late):
            told = f"Timed out after {tool.timeout_s:g} s."
            return _late("timed_out", told, late, tool)
        case Stopped(late):
            return _late("cancelled", "Cancelled while it was running.", late, tool)


def _shown(tool: Tool[..., Any], value: object) -> Result:
    try:
        return Result("value", shown(value))
    except TypeError as error:
        _log.warning("the result of tool %s cannot be shown", tool.name, exc_info=True)
        return Result.say("error", f"{tool.name} was done, but its result cannot be shown: {error}")


def _late(
    kind: ResultKind, told: str, late: Returned | Raised | None, tool: Tool[..., Any]
) -> Result:
    """What is known of a call that was told to stop. It may not have done all of its work."""
    match late:
        case Returned(value) if value is not None:
            seen = result_of(tool, Returned(value), 1).content
            return Result(kind, (Text(f"{told} While it was being stopped it returned: "), *seen))
        case Returned():
            return Result.say(kind, f"{told} It stopped when it was told to.")
        case Raised(error):
            return Result.say(
                kind, f"{told} It failed while it was being stopped: {error_text(error)}"
            )
        case None:
            unsure = " Whether it took effect is not known." if tool.spec.effect != "read" else ""
            return Result.say(kind, f"{told}{unsure}")


def circuit_open(tool: Tool[..., Any], wait_s: float) -> str:
    """What the model reads when a breaker keeps a call back."""
    again = (
        f"it is tried again in {wait_s:.0f} s" if wait_s else "it is being tried by another call"
    )
    return f"{tool.name} keeps failing and is switched off for now; {again}. Go on without it."
