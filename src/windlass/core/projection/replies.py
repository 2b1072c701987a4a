"""How attempts, replies and the end of a run change a projection."""

from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    ReplyJudged,
    RunEnded,
    StepProposed,
)
from windlass.core.messages import TextPart
from windlass.core.projection.calls import abandon_calls
from windlass.core.projection.changes import (
    add_charges,
    add_entry,
    add_notice,
    current_run,
    run_number,
    settle_tail,
)
from windlass.core.projection.entries import (
    FailureEntry,
    FallbackEntry,
    ModelNoteEntry,
    Place,
    SteeringEntry,
)
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import CallView, Projection, ReplyEntry
from windlass.core.reply_hold import WITHHELD_PART, awaits_judgement
from windlass.core.tool_search import unwrap_call
from windlass.core.verdicts import Allow, Deny, OutputMismatch


def withholds_replies(view: Projection) -> bool:
    """Whether a reply is shown only after the gate has allowed it."""
    return view.setup is not None and view.setup.withhold_replies


def apply_attempt_started(view: Projection, fact: AttemptStarted) -> Projection:
    """Open an attempt: whatever streams from now on belongs to it."""
    if fact.purpose == "main":
        view = _mark_retried(view, (fact.seq, 0))
    view = settle_tail(view)
    run = current_run(view)
    run = replace(run, requests=run.requests + 1)
    view = replace(view, attempt=fact, reply=None, retry_at=None, run=run)
    if fact.purpose != "main":
        return view
    falls_back = view.failures > 0 and run.model not in ("", fact.model)
    if falls_back:
        place = (fact.seq, 0)
        entry = FallbackEntry(
            fact.model, run.model, seq=fact.seq, at=fact.at, run=run.number, changed=place
        )
        view = replace(add_entry(view, entry), failures=0)
    run = replace(run, model=fact.model, fallbacks=run.fallbacks + falls_back)
    return replace(view, reply=StreamingReply(fact.step, fact.attempt, fact.model), run=run)


def _mark_retried(view: Projection, place: Place) -> Projection:
    """Return the view with the failure that another attempt follows marked as such."""
    tail = tuple(
        replace(entry, retried=True, changed=place)
        if isinstance(entry, FailureEntry) and entry.purpose == "main"
        else entry
        for entry in view.tail
    )
    return replace(view, tail=tail)


def apply_attempt_failed(view: Projection, fact: AttemptFailed) -> Projection:
    """Drop what the attempt has shown, and keep why it failed."""
    attempt = view.attempt
    if withholds_replies(view) and fact.partial:
        fact = replace(fact, partial="")
    entry = FailureEntry(
        fact, seq=fact.seq, at=fact.at, run=run_number(view), changed=(fact.seq, 0)
    )
    if attempt is not None:
        entry = replace(
            entry,
            model=attempt.model,
            step=attempt.step,
            attempt=attempt.attempt,
            purpose=attempt.purpose,
            requested_at=attempt.at,
        )
    view = replace(add_entry(view, entry), attempt=None, reply=None)
    view = add_charges(view, (fact.charge,))
    run = current_run(view)
    stalls = run.stalls + (fact.fault.kind == "stalled")
    run = replace(run, failures=run.failures + 1, stalls=stalls)
    # A summary that fails is not tried again: the step continues without it.
    if entry.purpose != "main":
        return replace(view, run=run)
    run = replace(run, partial=fact.partial)
    failures = view.failures + 1
    retry_at = fact.at + fact.wait_s if fact.fault.retryable else None
    return replace(view, run=run, failures=failures, retry_at=retry_at)


def apply_step_proposed(view: Projection, fact: StepProposed) -> Projection:
    """Put a complete reply in place of what streamed of it."""
    view = add_charges(settle_tail(view), (fact.charge,))
    reply = fact.reply
    # Who watches through a publisher gets a withheld reply without its words.
    is_blanked = reply.parts == (WITHHELD_PART,)
    is_held = not is_blanked and withholds_replies(view) and awaits_judgement(fact)
    is_withheld = is_held or is_blanked
    entry = ReplyEntry(
        seq=fact.seq,
        at=fact.at,
        run=run_number(view),
        changed=(fact.seq, 0),
        parts=() if is_withheld else reply.parts,
        model=reply.model,
        step=view.steps + 1,
        stop=fact.stop,
        requested_at=view.attempt.at if view.attempt else None,
        calls=tuple(CallView(unwrap_call(call), changed=(fact.seq, 0)) for call in reply.calls),
        charge=fact.charge,
        withheld=is_withheld,
    )
    run = current_run(view)
    text = run.text
    if is_withheld:
        text = ""
    elif reply.text.strip():
        text = reply.text
    return replace(
        add_entry(view, entry),
        attempt=None,
        reply=None,
        retry_at=None,
        failures=0,
        steps=view.steps + 1,
        held_reply=fact if is_held else None,
        run=replace(run, steps=run.steps + 1, text=text, partial=""),
    )


def apply_reply_judged(view: Projection, fact: ReplyJudged) -> Projection:
    """Show a final reply, or take it back with a note about the reason."""
    held = view.held_reply
    run = current_run(view)
    place = (fact.seq, 0)
    view = replace(view, held_reply=None)
    match fact.verdict:
        case Allow():
            if held is None:
                return _change_reply(view, place, verdict=fact.verdict)
            parts = held.reply.parts
            view = replace(view, run=replace(run, text=held.reply.text))
            return _change_reply(view, place, verdict=fact.verdict, parts=parts, withheld=False)
        case Deny(reason):
            note = f"Your reply was withheld: {reason}. Answer in another way."
            view = replace(view, run=replace(run, text=""))
            view = _change_reply(view, place, verdict=fact.verdict, parts=(), withheld=True)
        case OutputMismatch(message):
            note = message
            view = _change_reply(view, place, verdict=fact.verdict)
    entry = ModelNoteEntry(
        note, fact.verdict, seq=fact.seq, at=fact.at, run=run_number(view), changed=place
    )
    return add_entry(view, entry)


def _change_reply(view: Projection, place: Place, **fields: object) -> Projection:
    """Return the view with the reply that was judged changed; it is the last one in the tail."""
    tail = list(view.tail)
    for at in reversed(range(len(tail))):
        entry = tail[at]
        if isinstance(entry, ReplyEntry):
            tail[at] = replace(entry, changed=place, **fields)
            return replace(view, tail=tuple(tail))
    return view


def apply_run_ended(view: Projection, fact: RunEnded) -> Projection:
    """Close what was open, and keep what had come of a reply that was not complete."""
    if withholds_replies(view) and fact.partial:
        fact = replace(fact, partial="")
    view = add_charges(abandon_calls(view, fact), (fact.charge, *fact.charges))
    if fact.partial.strip():
        partial = ReplyEntry(
            seq=fact.seq,
            at=fact.at,
            run=run_number(view),
            changed=(fact.seq, 0),
            parts=(TextPart(fact.partial),),
            model=view.attempt.model if view.attempt else "",
            step=view.steps + 1,
            kind="partial",
            requested_at=view.attempt.at if view.attempt else None,
        )
        view = add_entry(view, partial)
    if view.run is not None and view.run.queued:
        # The run never began, so nothing that was said to it entered the conversation.
        view = replace(view, pending=())
    view = add_notice(take_steering(view, (fact.seq, 0)), fact)
    run = current_run(view)
    run = replace(
        run,
        outcome=fact.outcome,
        reason=fact.reason,
        fault=fact.fault,
        ended_at=fact.at,
        pause=None,
        queued=False,
        released=False,
        partial=fact.partial or run.partial,
    )
    return replace(
        view, run=run, attempt=None, reply=None, retry_at=None, failures=0, held_reply=None
    )


def take_steering(view: Projection, place: Place) -> Projection:
    """Return the view with the messages given during the run in the conversation."""
    taken: list[SteeringEntry] = [replace(entry, changed=place) for entry in view.pending]
    return replace(add_entry(view, *taken), pending=())
