"""How a run ended, in the words of the protocol."""

from dataclasses import dataclass

from acp.schema import PromptResponse, StopReason
from acp.schema import Usage as TurnUsage

from windlass.core.faults import Outcome
from windlass.core.messages import Usage
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.server.acp.acp_errors import INTERNAL_ERROR, make_error

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
