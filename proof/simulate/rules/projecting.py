"""Rules for the projection: it says what the fold says, whenever its watcher came (D12)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest

from msgspec.structs import replace

from proof.simulate.play import PlayedSession, ProcessDrive
from proof.simulate.rules.broken import require
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallDelta,
    CallStarted,
    Event,
    Fact,
    RunEnded,
    RunReleased,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.fold.phases import CALL_PHASES
from windlass.core.fold.run import apply_fact
from windlass.core.messages import AssistantMessage, ToolResults, UserMessage
from windlass.core.projection.entries import ModelNoteEntry, PromptEntry, SteeringEntry
from windlass.core.projection.project import (
    apply_event,
    nest_events,
    project_events,
    without_live_parts,
)
from windlass.core.projection.view import NestedView, Projection, ReplyEntry
from windlass.core.reply_hold import visible_facts
from windlass.core.result import open_questions
from windlass.core.state import State

_OPEN_STATES = {phase: phase for phase in CALL_PHASES} | {"started": "running"}
CUTS_MAX = 12
"""At how many moments of a drive another watcher comes."""


def check_projection(played: PlayedSession) -> None:
    """D12: live, late and afterwards, a watcher has the same view; it agrees with the fold."""
    session = played.plan.session
    _check_against_fold(session, played.facts)
    for name, facts in played.inner.items():
        _check_against_fold(name, facts)
    for drive in played.drives:
        if played.plan.watched and drive.events and drive.powered:
            _check_drive(drive, played)


def _check_drive(drive: ProcessDrive, played: PlayedSession) -> None:
    session = played.plan.session
    events = drive.events
    first = events[0].seq
    before = project_events(played.facts[: first - 1], session)
    live = project_events(events, start=before)
    seen = before
    seen_upto = 0
    every = max(1, len(events) // CUTS_MAX)
    for cut in range(0, len(events) + 1, every):
        who = f"a watcher that came after {cut} of {len(events)} events"
        seen = project_events(events[seen_upto:cut], start=seen)
        seen_upto = cut
        late = _come_late(events[:cut], first, played)
        _require_same(late, seen, who)
        _require_same(project_events(events[cut:], start=late), live, f"at the end, {who}")
    if isinstance(events[-1], RunEnded) and (drive.result is None or drive.result.recorded):
        facts = played.facts[: events[-1].seq]
        _require_same(project_events(facts, session), live, "a reader of the record")
        after = project_events(visible_facts(facts, withhold=False, live=False), session)
        _require_same(after, live, "a watcher that came after the end")
        _check_nested(live, played)


def _come_late(seen: Sequence[Event], first: int, played: PlayedSession) -> Projection:
    """Return the view of a watcher that reads the record first, then the text so far."""
    seq = seen[-1].seq if seen else first - 1
    late = project_events(played.facts[:seq], played.plan.session)
    return project_events(_text_so_far(seen), start=late)


def _text_so_far(events: Sequence[Event]) -> Iterator[Event]:
    """Yield what has streamed of the open attempt, in as few pieces as possible."""
    pieces = list[Event]()
    for event in events:
        if isinstance(
            event, AttemptStarted | AttemptFailed | StepProposed | RunReleased | RunEnded
        ):
            pieces.clear()
        elif isinstance(event, TextDelta | ThinkingDelta | CallDelta | UsageDelta):
            pieces.append(event)
    for kind, group in groupby(pieces, type):
        same = list(group)
        if kind is TextDelta or kind is ThinkingDelta:
            text = "".join(getattr(piece, "text", "") for piece in same)
            same = [replace(same[-1], text=text)]
        # Their places are those of the moment; here they just come next.
        yield from (replace(piece, seq=0, nth=0) for piece in same)


def _require_same(found: Projection, wanted: Projection, who: str) -> None:
    one = without_live_parts(found)
    other = without_live_parts(wanted)
    if one == other:
        return
    for name in one.__struct_fields__:
        pair = getattr(one, name), getattr(other, name)
        if pair[0] != pair[1] and name in ("settled", "runs"):
            differ = (both for both in zip_longest(*pair) if both[0] != both[1])
            pair = next(differ)
        require(pair[0] == pair[1], f"D12: {who} is shown {name} {pair[0]}, and not {pair[1]}")


def _check_nested(live: Projection, played: PlayedSession) -> None:
    """A sub-agent that was watched from its beginning is shown as by its own record."""
    # A sub-agent may write its end after the run of its caller, when nobody is told any more.
    upto = {nested.session: nested.projection.seq for nested in _nested_views(live)}
    recorded = project_events(_with_children(played, upto), played.plan.session)
    for shown, wanted in zip(_nested_views(live), _nested_views(recorded), strict=False):
        if shown.session == wanted.session and shown.projection.entries[0].seq == 1:
            _require_same(shown.projection, wanted.projection, f"the caller of {shown.session}")


def _with_children(played: PlayedSession, upto: Mapping[str, int]) -> Iterator[Event]:
    """Yield the record with those of the sub-agents, each after the start of its call."""
    for fact in played.facts:
        yield fact
        if isinstance(fact, CallStarted) and fact.key in upto:
            facts = played.inner[fact.key][: upto[fact.key]]
            yield from nest_events(fact.call_id, fact.name, fact.key, facts)


def _nested_views(view: Projection) -> Iterator[NestedView]:
    for entry in view.entries:
        for call in entry.calls if isinstance(entry, ReplyEntry) else ():
            yield from call.agents


def _check_against_fold(session: str, facts: Sequence[Fact]) -> None:
    """A view says what the state says, after every fact."""
    view = Projection(session)
    state = State(session)
    for fact in facts:
        view = apply_event(view, fact)
        state = apply_fact(state, fact)
        _check_fact(view, state, fact)
    _check_conversation(view, state)


def _check_fact(view: Projection, state: State, fact: Fact) -> None:
    run = state.run
    shown = view.run
    require(run is not None and shown is not None, "D12: no run is shown")
    if run is None or shown is None:
        return
    place = f"after record {fact.seq} ({type(fact).__name__})"
    pairs = {
        "run": (shown.number, run.number),
        "outcome": (shown.outcome, run.outcome),
        "steps": (shown.steps, run.steps),
        "requests": (shown.requests, run.model_calls),
        "model": (shown.model, run.model),
        "spent": (shown.ledger, run.ledger),
        "spent by the session": (view.ledger, state.ledger),
        "open calls": (
            [call.id for call in view.open_calls],
            [call.id for call in state.step_calls if call.phase != "closed"],
        ),
        "states": (
            [call.state for call in view.open_calls],
            [_OPEN_STATES[call.phase] for call in state.step_calls if call.phase != "closed"],
        ),
        "arguments": (
            [call.arguments for call in view.open_calls],
            [call.arguments for call in state.step_calls if call.phase != "closed"],
        ),
        "questions": (
            [(one.call_id, one.digest, one.expires_at) for one in view.questions],
            [(one.call_id, one.digest, one.expires_at) for one in open_questions(state)],
        ),
        # A run that was let go waits for a driver first, or for its pause to end.
        "waiting": (
            view.status.waits_for == "person",
            state.is_active and state.is_waiting and not run.is_released,
        ),
        "pause": (shown.pause, run.pause),
        "raised limits": (shown.raised, run.raised),
        "released": (shown.released, run.is_released and run.outcome is None),
        "attempt": (view.attempt, run.attempt),
    }
    for name, (found, wanted) in pairs.items():
        require(found == wanted, f"D12: {name} is shown as {found}, but is {wanted}, {place}")


def _check_conversation(view: Projection, state: State) -> None:
    """The entries have the texts and results of the transcript, in its order."""
    held = state.setup is not None and state.setup.withhold_replies
    shown = [
        entry.text
        for entry in view.entries
        if isinstance(entry, PromptEntry | SteeringEntry | ModelNoteEntry)
    ]
    lookups = [message for message in state.transcript if isinstance(message, UserMessage)]
    said = [message.text for message in lookups]
    missing = [text for text in shown if text not in said]
    require(not missing, f"D12: {missing} is shown, but was not said")
    replies = [entry.text for entry in view.entries if isinstance(entry, ReplyEntry)]
    texts = [message.text for message in state.transcript if isinstance(message, AssistantMessage)]
    # A step enters the transcript whole. The session of a sub-agent whose process died has one that
    # is open, and a watcher is shown as much of it as is on record.
    open_step = state.step
    if open_step is not None:
        texts.append(open_step.reply.text)
    if not held:
        wanted = [text for text in texts if text.strip()]
        require([text for text in replies if text.strip()] == wanted, f"D12: {replies} / {wanted}")
    results = {
        item.call.id: item.result
        for message in state.transcript
        if isinstance(message, ToolResults)
        for item in message.items
    }
    if open_step is not None:
        results |= {call.id: call.result for call in open_step.calls if call.result is not None}
    for entry in view.entries:
        for call in entry.calls if isinstance(entry, ReplyEntry) and entry.kind == "reply" else ():
            require(call.result == results.get(call.id), f"D12: {call.id}: {call.result}")
