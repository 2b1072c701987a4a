"""A watcher that keeps its events for assertions, and the rules that hold for every watch."""

from collections.abc import Sequence
from typing import TypeVar

from windlass.core.events import (
    AttemptDiscarded,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    Event,
    Fact,
    LookupsPlanned,
    PlacedEvent,
    RunEnded,
    RunStarted,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UndoPlanned,
)

E = TypeVar("E", bound=PlacedEvent)


class Trace:
    """A watcher that keeps all events: pass it as `on_event`."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.events: list[Event] = list(events)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def __len__(self) -> int:
        return len(self.events)

    def kinds(self) -> list[str]:
        """Return the names of the types of the events, in order."""
        return [type(event).__name__ for event in self.events]

    def of_type(self, kind: type[E]) -> list[E]:
        """Return the events of one type, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def texts(self) -> list[str]:
        """Return the text of each text delta, in order."""
        return [event.text for event in self.of_type(TextDelta)]

    def shown_text(self) -> str:
        """Return the text on the screen at the end: text of discarded attempts is removed."""
        shown: list[str] = []
        kept = 0
        for event in self.events:
            if isinstance(event, TextDelta):
                shown.append(event.text)
            elif isinstance(event, AttemptStarted):
                kept = len(shown)  # What was shown before this attempt stays.
            elif isinstance(event, AttemptDiscarded):
                del shown[kept:]
        return "".join(shown)

    def check(self) -> None:
        """Raise an AssertionError unless these are the events of one whole run."""
        check_trace(self.events)


def check_trace(events: Sequence[Event]) -> None:
    """Raise an AssertionError unless these are the events of one run, watched to its end.

    The rules: places grow and facts leave no gap; no text is empty; calls are announced
    before they start; there is one terminal event, and it is the last.
    """
    _check_places(events)
    _check_texts(events)
    _check_calls(events)
    ends = [at for at, event in enumerate(events) if isinstance(event, RunEnded | RunSuspended)]
    _require(bool(ends), f"no terminal event after {_last_events(events)}")
    _require(
        len(ends) == 1, f"{len(ends)} terminal events: {[_event_label(events[at]) for at in ends]}"
    )
    _require(
        ends[0] == len(events) - 1, f"events after the end: {_last_events(events[ends[0] + 1 :])}"
    )


def _check_places(events: Sequence[Event]) -> None:
    before: Event | None = None
    for event in events:
        fact = isinstance(event, Fact)
        _require(fact == (event.nth == 0), f"{_event_label(event)} has nth={event.nth}")
        if before is not None:
            grew = (event.seq, event.nth) > (before.seq, before.nth)
            _require(grew, f"{_event_label(event)} comes after {_event_label(before)}")
            gap = event.seq - before.seq - (1 if fact else 0)
            _require(
                gap == 0,
                f"{_event_label(before)} is followed by {_event_label(event)}: a fact is missing",
            )
        before = event


def _check_texts(events: Sequence[Event]) -> None:
    for event in events:
        match event:
            case TextDelta(text):
                _require(text != "", f"{_event_label(event)} is empty")
            case ThinkingDelta(text, signature):
                _require(bool(text or signature), f"{_event_label(event)} is empty")
            case _:
                pass


def _check_calls(events: Sequence[Event]) -> None:
    # A watch that begins in the middle of a run did not see the earlier events of its calls.
    whole = bool(events) and isinstance(events[0], RunStarted)
    announced: set[str] = set()
    judged: set[str] = set()
    started: set[str] = set()
    finished: set[str] = set()
    for event in events:
        match event:
            case StepProposed(reply):
                announced |= {call.id for call in reply.calls}
            case LookupsPlanned(calls) | UndoPlanned(calls):
                announced |= {call.id for call in calls}
            case CallJudged(call_id) | CallAnswered(call_id):
                _require(not whole or call_id in announced, f"{_event_label(event)}: not announced")
                judged.add(call_id)
            case CallStarted(call_id):
                _require(not whole or call_id in announced, f"{_event_label(event)}: not announced")
                _require(not whole or call_id in judged, f"{_event_label(event)}: not judged")
                _require(call_id not in finished, f"{_event_label(event)}: it had already finished")
                started.add(call_id)
            case CallFinished(call_id):
                _require(not whole or call_id in started, f"{_event_label(event)}: not started")
                _require(call_id not in finished, f"{_event_label(event)}: it had already finished")
                finished.add(call_id)
            case _:
                pass


def _event_label(event: Event) -> str:
    call_id = getattr(event, "call_id", None)
    about = f" of {call_id}" if call_id else ""
    return f"{type(event).__name__}{about} at {event.seq}.{event.nth}"


def _last_events(events: Sequence[Event]) -> str:
    return ", ".join(_event_label(event) for event in events[-3:]) or "nothing"


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise AssertionError(f"not a valid trace: {otherwise}")
