"""Rules for watchers: each event once, in order, after its record, and nothing that is withheld."""

from itertools import takewhile

from msgspec.structs import replace

from proof.simulate.play import PlayedSession, ProcessDrive
from proof.simulate.rules.broken import require
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    ContextCompacted,
    Event,
    Fact,
    NestedEvent,
    ReplyJudged,
    RunEnded,
    RunReleased,
    RunSuspended,
    StepProposed,
    TextDelta,
)
from windlass.core.reply_hold import WITHHELD_PART, awaits_judgement
from windlass.core.verdicts import Allow
from windlass.testing.events import Trace, check_trace

CANCEL_S = 0.1
PREFIX = 7
"""How many characters identify a reply."""


def check_watching(played: PlayedSession) -> None:
    secret = _withheld_texts(played)
    for drive in (drive for drive in played.drives if not drive.was_too_late):
        if played.plan.more.on_failure == "keep":  # Else it waits until the run is undone.
            _check_cancel(drive)
        _check_kept(drive, played)
        _check_unseen(drive, secret)
        if played.plan.watched and drive.powered:
            _check_order(drive)


def _check_order(drive: ProcessDrive) -> None:
    """L3, E1, E2, E6, S5: one end, the last event; places grow; text is shown exactly once."""
    stopped = drive.cancelled_at is not None
    require(drive.result is not None or stopped, "L3: a drive without a result")
    if not drive.events and stopped:
        return  # Cancelled before the run began.
    check_trace(drive.events)
    last = drive.events[-1]
    if drive.result is not None:
        returned = drive.result.outcome
        if isinstance(last, RunSuspended):
            fits = returned in ("suspended", "paused", "released")
        else:
            fits = returned == getattr(last, "outcome", "")
        require(fits, f"L3: {last} shown, {returned} returned")
    _check_text_once(drive)


def _check_text_once(drive: ProcessDrive) -> None:
    said = ""
    asked = False
    for event in drive.events:
        if isinstance(event, AttemptStarted):
            asked = asked or event.purpose == "main"
        elif isinstance(event, StepProposed):
            asked = False
            if event.reply.text != WITHHELD_PART.text:
                said += event.reply.text
        elif isinstance(event, RunReleased) and asked:
            return  # The reply that was begun here is asked for again, by another driver.
        elif isinstance(event, RunEnded) and asked:
            # Text of an attempt in an earlier process was shown there, not here.
            said += event.partial
    shown = Trace(drive.events).shown_text()
    require(shown == said, f"S5: shown {shown!r}, said {said!r}")


def _check_cancel(drive: ProcessDrive) -> None:
    """C1: a run ends within 100 ms of a cancel."""
    if drive.cancelled_at is not None and drive.powered:
        took = drive.ended_at - drive.cancelled_at
        require(took <= CANCEL_S, f"C1: the end came {took:.3f} s after the cancel")


def _check_kept(drive: ProcessDrive, played: PlayedSession) -> None:
    """E3: a fact that is shown is recorded at its place; that holds for helpers too."""
    for event in drive.events:
        if isinstance(event, NestedEvent):
            facts = played.inner.get(event.session, [])
            require(_is_kept(event.event, facts, drive), f"E3: {event} was shown but not recorded")
        else:
            known = _is_kept(event, played.facts, drive)
            require(known, f"E3: {type(event).__name__} {event.seq} was shown but not recorded")


def _is_kept(event: Event, facts: list[Fact], drive: ProcessDrive) -> bool:
    if not isinstance(event, Fact):
        return True
    if isinstance(event, RunEnded) and (not drive.powered or _is_unrecorded(drive)):
        return True  # An end is shown even if the journal did not accept it.
    if isinstance(event, ContextCompacted):
        # What it saved is told to live watchers only.
        event = replace(event, messages_saved=0, tokens_saved=0)
    kept = facts[event.seq - 1] if event.seq <= len(facts) else None
    if kept == event:
        return True
    # A withheld reply is shown without its text.
    hushed = isinstance(event, StepProposed) and event.reply.text == WITHHELD_PART.text
    hushed = hushed or (isinstance(event, RunEnded | AttemptFailed) and not event.partial)
    return hushed and type(kept) is type(event)


def _is_unrecorded(drive: ProcessDrive) -> bool:
    return drive.result is not None and not drive.result.recorded


def _withheld_texts(played: PlayedSession) -> list[str]:
    """Return the beginnings of the replies that the gate denied."""
    if not played.plan.more.judges_replies:
        return []
    facts = played.facts
    found = list[str]()
    for at, fact in enumerate(facts):
        if isinstance(fact, StepProposed) and awaits_judgement(fact):
            rest = takewhile(lambda one: not isinstance(one, StepProposed), facts[at + 1 :])
            verdicts = [one.verdict for one in rest if isinstance(one, ReplyJudged)]
            if not any(isinstance(verdict, Allow) for verdict in verdicts):
                found.append(fact.reply.text.strip()[:PREFIX])
    return [text for text in found if text]


def _check_unseen(drive: ProcessDrive, secret: list[str]) -> None:
    """G3: a denied reply reaches no watcher and is not in the result."""
    if not secret:
        return
    seen = [event.text for event in drive.events if isinstance(event, TextDelta)]
    seen += [one.reply.text for one in drive.events if isinstance(one, StepProposed)]
    seen += [one.partial for one in drive.events if isinstance(one, AttemptFailed | RunEnded)]
    if drive.result is not None:
        seen += [drive.result.text, drive.result.partial_text]
    shown = "".join(seen)
    for text in secret:
        require(text not in shown, f"G3: {text!r} was withheld, but it is shown")
