"""How the stream of a run ends: with an answer, a question, a cancel or an error."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from windlass.core.messages import Ledger, Usage
from windlass.core.projection.runs import OpenQuestion, RunView
from windlass.core.projection.view import Projection
from windlass.server.ag_ui import wire
from windlass.server.ag_ui.inputs import RunInput
from windlass.server.answers import ANSWER_SCHEMA, question_id
from windlass.server.client_run import ClientRun, describe_end

PAUSE_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def find_interrupts(run: ClientRun) -> tuple[wire.AgUiInterrupt, ...]:
    """Return what a run waits for a person for, without what was answered just now."""
    waits = run.waits
    view = run.view
    if run.run is not None and run.pause_id in waits:
        return (make_pause_interrupt(run.pause_id, run.run),)
    asked = (make_interrupt(view, question) for question in view.questions)
    return tuple(interrupt for interrupt in asked if interrupt.id in waits)


def make_interrupt(view: Projection, question: OpenQuestion) -> wire.AgUiInterrupt:
    """Return a question as the protocol asks it."""
    is_nested = question.session != view.session
    expires_at = ""
    if question.expires_at is not None:
        expires_at = datetime.fromtimestamp(question.expires_at, UTC).isoformat()
    return wire.AgUiInterrupt(
        id=question_id(question),
        reason="tool_call",
        message=question.question,
        tool_call_id=f"{question.session}:{question.call_id}" if is_nested else question.call_id,
        subagent_run_id=question.session if is_nested else "",
        response_schema=ANSWER_SCHEMA,
        expires_at=expires_at,
        metadata={
            "windlass": {
                "tool": question.tool,
                "arguments": question.arguments,
                "rule": question.rule,
                "agents": list(question.chain),
            }
        },
    )


def make_pause_interrupt(name: str, run: RunView) -> wire.AgUiInterrupt:
    """Return a pause as something that a person can end."""
    pause = run.pause
    because = f": {pause.reason}" if pause is not None and pause.reason else ""
    return wire.AgUiInterrupt(
        id=name,
        reason="windlass:paused",
        message=f"The run is paused{because}. Resolve this to go on, or cancel it to end the run.",
        response_schema=PAUSE_SCHEMA,
    )


def end_stream(
    view: Projection,
    run: RunView,
    run_input: RunInput,
    interrupts: tuple[wire.AgUiInterrupt, ...],
    before: Ledger,
) -> wire.AgUiEvent:
    """Return the event that closes the stream. `before`: what the run had cost when it began."""
    usage = tuple(count_usage(run.ledger, before))
    details: dict[str, Any] = {"session": view.session, "run": run.number}
    if run.outcome is not None:
        details["outcome"] = run.outcome
    if run.ledger.usd is not None:
        details["costUsd"] = str(run.ledger.usd)
    metadata = {"windlass": details}
    if run.outcome not in (None, "completed", "cancelled"):
        return wire.RunErrorEvent(describe_end(run), str(run.outcome), usage, metadata=metadata)
    outcome = wire.RunOutcome("success")
    if run.outcome == "cancelled":
        outcome = wire.RunOutcome("cancelled")
    elif interrupts:
        outcome = wire.RunOutcome("interrupt", interrupts)
    return wire.RunFinishedEvent(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        result=run.text if run.outcome == "completed" else None,
        outcome=outcome,
        usage=usage,
        metadata=metadata,
    )


def count_usage(ledger: Ledger, before: Ledger) -> Iterator[wire.TokenUsage]:
    """Yield the tokens of each model that were used since an earlier moment."""
    earlier = _sum_by_model(before)
    for model, usage in _sum_by_model(ledger).items():
        old = earlier.get(model, Usage())
        if usage.total == old.total:
            continue
        provider, _, name = model.rpartition(":")
        yield wire.TokenUsage(
            provider=provider,
            model=name,
            input_tokens=usage.input - old.input,
            output_tokens=usage.output - old.output,
            total_tokens=usage.total - old.total,
            reasoning_tokens=usage.reasoning - old.reasoning,
            cached_input_tokens=usage.cache_read - old.cache_read,
            cache_write_input_tokens=usage.cache_write - old.cache_write,
        )


def _sum_by_model(ledger: Ledger) -> dict[str, Usage]:
    sums: dict[str, Usage] = {}
    for charge in ledger.charges:
        if charge.usage is not None:
            sums[charge.model] = sums.get(charge.model, Usage()) + charge.usage
    return sums
