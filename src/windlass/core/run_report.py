"""The result of a run, read off the state."""

from typing import Any

from windlass.core.result import Question, RunResult
from windlass.core.setup import digest
from windlass.core.state import State


def build_result(state: State, *, recorded: bool) -> RunResult[Any]:
    """What the session's last run came to, or waits for."""
    run, setup = state.run, state.setup
    if run is None or setup is None:
        raise ValueError("no run has started")
    return RunResult(
        outcome=run.outcome or "suspended",
        reason=run.reason,
        output=None,
        text=run.text,
        partial_text=run.partial,
        messages=tuple(state.transcript),
        new_from=run.new_from,
        ledger=run.ledger,
        steps=run.steps,
        model_calls=run.model_calls,
        duration_s=run.elapsed_s,
        session_id=state.session,
        run=run.number,
        error=run.fault,
        gated=bool(setup.gate),
        recorded=recorded,
        questions=open_questions(state),
    )


def open_questions(state: State) -> tuple[Question, ...]:
    """What waits for a person."""
    calls = state.step.calls if state.step else ()
    return tuple(
        Question(
            call.call,
            call.decoded_arguments,
            call.question.question,
            digest(call.decoded_arguments),
            call.question.expires_at,
        )
        for call in calls
        if call.question is not None
    )
