"""Hold a final reply back from watchers until its gate has allowed it.

The journal keeps a denied reply, and the model sees that it was denied. A watcher learns only that
there was a reply.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import final

from msgspec.structs import replace

from windlass.core.control_facts import RunReleased
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallDelta,
    Delta,
    Event,
    Fact,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import AssistantMessage, TextPart
from windlass.core.verdicts import Allow, Deny

WITHHELD_PART = TextPart("[withheld]")
_SETTLING_FACTS = (ReplyJudged, AttemptStarted, RunEnded)
"""The facts that settle whether a reply is shown."""


def awaits_judgement(fact: StepProposed) -> bool:
    """Whether a reply is a final one, which will be judged."""
    if fact.reply.calls:
        return False
    text = fact.reply.text
    is_cut = fact.stop in ("length", "refusal")
    # A blank reply is asked for again and never judged, unless it was cut off.
    return bool(text.strip() or (text and is_cut))


def without_reply(event: Event) -> Event | None:
    """Return the event without the words of the model; None if nothing else is in it."""
    match event:
        case TextDelta() | ThinkingDelta() | CallDelta():
            return None
        case StepProposed(reply):
            return replace(event, reply=AssistantMessage((WITHHELD_PART,), reply.model))
        case AttemptFailed() | RunEnded():
            if event.partial:
                return replace(event, partial="")
            return event
        case _:
            return event


@final
class ReplyHold:
    """Holds a live reply until it is judged, and everything that comes after it in the meantime."""

    __slots__ = ("_pieces", "_waiting")

    def __init__(self) -> None:
        self._pieces: list[Delta] = []
        self._waiting: list[Event] | None = None

    def hold_piece(self, piece: Delta) -> None:
        """Hold a piece of a reply that is still coming."""
        self._pieces.append(piece)

    def place_pieces(self, place: Callable[[Delta], Delta]) -> None:
        """Give the held pieces their places, now that the reply is complete."""
        self._pieces = [place(piece) for piece in self._pieces]

    def drop_pieces(self) -> None:
        """Forget the held pieces: they will not become a reply."""
        self._pieces = []

    def release_events(self, event: Event) -> Iterator[Event]:
        """Yield what watchers may see now that this event has happened."""
        match event:
            case StepProposed():
                pieces = self._pieces
                self._pieces = []
                if awaits_judgement(event):
                    self._waiting = [*pieces, event]
                    return
                yield from pieces
            case ReplyJudged(verdict):
                yield from self._release_waiting(allowed=isinstance(verdict, Allow))
            case RunEnded() | RunReleased() | AttemptFailed():
                # A driver that releases the run will not judge the reply: the next one will.
                yield from self._release_waiting(allowed=False)
                event = without_reply(event) or event
            case _:
                pass
        if self._waiting is None:
            yield event
        else:
            self._waiting.append(event)

    def _release_waiting(self, *, allowed: bool) -> Iterator[Event]:
        waiting = self._waiting or ()
        self._waiting = None
        for event in waiting:
            visible = event if allowed else without_reply(event)
            if visible is not None:
                yield visible


def visible_facts(facts: Sequence[Fact], *, withhold: bool, live: bool) -> Iterator[Event]:
    """Yield recorded facts as a watcher may see them.

    `withhold`: whether replies are withheld before the first recorded setup says so. `live`: the
    run is not over, so a reply that waits to be judged is not shown yet; a ReplyHold will release
    it.
    """
    for at, fact in enumerate(facts):
        if isinstance(fact, RunStarted | RunResumed) and fact.setup is not None:
            withhold = fact.setup.withhold_replies
        if isinstance(fact, StepProposed) and awaits_judgement(fact):
            settled_by = _find_settling_fact(facts, at)
            if settled_by is None and live and withhold:
                return
            if isinstance(settled_by, ReplyJudged):
                verdict = settled_by.verdict
            else:
                verdict = None
            hide = isinstance(verdict, Deny) or (withhold and not isinstance(verdict, Allow))
        else:
            hide = withhold and isinstance(fact, AttemptFailed | RunEnded)
        visible = without_reply(fact) if hide else fact
        if visible is not None:
            yield visible


def _find_settling_fact(facts: Sequence[Fact], at: int) -> Fact | None:
    """Return the fact that settles whether a reply is shown, or None if it is not settled."""
    later = (fact for fact in facts[at + 1 :] if isinstance(fact, _SETTLING_FACTS))
    return next(later, None)
