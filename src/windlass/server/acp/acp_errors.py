"""How a run ended, and errors as an editor shows them: a code, a sentence, and what to do."""

from dataclasses import dataclass
from typing import Any

from acp import RequestError
from acp.schema import PromptResponse, StopReason
from acp.schema import Usage as TurnUsage

from windlass.core.errors import (
    FolderNotTrusted,
    ForOperator,
    NothingToDo,
    Outcome,
    SessionBusy,
    SetupDrifted,
    WindlassError,
)
from windlass.core.messages import Usage
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.core.result import RunFailed
from windlass.project.snapshot import ProjectSnapshot
from windlass.project.trust import explain_no_trust

INVALID_PARAMS = -32602
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
NOT_FOUND = -32002
NOT_TRUSTED = -32003


def make_error(code: int, kind: str, message: str, **data: Any) -> RequestError:  # noqa: ANN401 - JSON
    """Return an error. `kind` names it for programs, in `data.code`."""
    return RequestError(code, message, {"code": kind, **data})


def explain_trust(snapshot: ProjectSnapshot) -> RequestError:
    """Return the error for a folder that no person has trusted."""
    first = explain_no_trust(snapshot).partition("\n")[0]
    return make_error(
        NOT_TRUSTED,
        "folder_not_trusted",
        f"{first[:1].upper()}{first[1:]} Windlass does nothing in this folder until you decide. "
        f"To see what the settings would do, and to trust them, run `windlass trust` in "
        f"{snapshot.folder}. To work without them, start `windlass acp --no-trust`.",
        folder=str(snapshot.folder),
    )


def convert_error(error: WindlassError) -> RequestError:
    """Return an error of Windlass as one of the protocol."""
    text = str(error)
    sentence = text[:1].upper() + text[1:]
    match error:
        case FolderNotTrusted():
            return make_error(NOT_TRUSTED, "folder_not_trusted", sentence)
        case NothingToDo():
            return make_error(NOT_FOUND, "not_found", sentence)
        case SessionBusy():
            return make_error(INVALID_REQUEST, "session_busy", sentence)
        case SetupDrifted():
            changes = "; ".join(error.drift)
            return make_error(
                INVALID_REQUEST,
                "setup_drifted",
                "The settings differ from those that the open run was started with: "
                f"{changes}. To go on with it all the same: windlass resume --consent",
            )
        case ForOperator():
            return make_error(INVALID_PARAMS, "not_possible", sentence)
        case RunFailed():
            return make_error(
                INTERNAL_ERROR,
                "run_failed",
                f"The run failed: {text}",
                session=error.result.session_id,
                fault=error.fault.kind,
            )
        case _:
            return make_error(INTERNAL_ERROR, "internal_error", sentence)


STOP_REASONS: dict[Outcome, StopReason] = {
    "cancelled": "cancelled",
    "refused": "refusal",
    "policy_denied": "refusal",
    "truncated": "max_tokens",
    "max_steps": "max_turn_requests",
    "budget_exceeded": "max_turn_requests",
    "timed_out": "max_turn_requests",
}
"""What the protocol calls the end of a run; `end_turn` for all others."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended."""

    stop_reason: StopReason
    outcome: Outcome
    usage: TurnUsage | None = None
    usd: str | None = None

    def to_response(self) -> PromptResponse:
        """Return the answer to the prompt that began the turn."""
        meta = {"windlass": {"outcome": self.outcome, "usd": self.usd}}
        return PromptResponse(stop_reason=self.stop_reason, usage=self.usage, field_meta=meta)


def end_turn(view: Projection) -> TurnEnd:
    """Return how the last run of a session ended. Raises RequestError if it failed."""
    run = view.run or RunView(outcome="completed")
    outcome = run.outcome or "completed"
    if outcome == "failed":
        message = run.fault.message if run.fault is not None else run.reason
        kind = run.fault.kind if run.fault is not None else ""
        text = f"The run failed: {message}"
        raise make_error(INTERNAL_ERROR, "run_failed", text, session=view.session, fault=kind)
    usage = run.ledger.usage
    return TurnEnd(
        STOP_REASONS.get(outcome, "end_turn"),
        outcome,
        None if usage is None else show_usage(usage),
        None if run.ledger.usd is None else str(run.ledger.usd),
    )


def show_usage(usage: Usage) -> TurnUsage:
    """Return the tokens of a turn as the protocol counts them."""
    return TurnUsage(
        total_tokens=usage.total,
        input_tokens=usage.input,
        output_tokens=usage.output,
        thought_tokens=usage.reasoning,
        cached_read_tokens=usage.cache_read,
        cached_write_tokens=usage.cache_write,
    )
