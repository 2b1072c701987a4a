"""What watchers are not shown: a final reply that its gate has not allowed (G3).

The journal keeps what was said, and the model sees that it was denied; whoever watches learns only
that there was a reply.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import final

from msgspec.structs import replace

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


def awaits_judgement(fact: StepProposed) -> bool:
    """Whether a reply is a final one, which will be judged."""
    text = fact.reply.text
    cut = fact.stop in ("length", "refusal")
    return not fact.reply.calls and bool(text.strip() or (text and cut))


def without_reply(event: Event) -> Event | None:
    """The event without what the model said; None if it is nothing else."""
    match event:
        case TextDelta() | ThinkingDelta() | CallDelta():
            return None
        case StepProposed(reply):
            return replace(event, reply=AssistantMessage((WITHHELD_PART,), reply.model))
        case AttemptFailed() | RunEnded():
            return replace(event, partial="") if event.partial else event
        case _:
            return event


@final
class ReplyHold:
    """Keeps a reply back until it is judged, and all that comes after it in the meantime."""

    __slots__ = ("_pieces", "_waiting")

    def __init__(self) -> None:
        self._pieces: list[Delta] = []
        self._waiting: list[Event] | None = None

    def hold_piece(self, piece: Delta) -> None:
        """Take a piece of a reply in."""
        self._pieces.append(piece)

    def place_pieces(self, placed: Callable[[Delta], Delta]) -> None:
        """The reply is whole: its pieces get their places before it."""
        self._pieces = [placed(piece) for piece in self._pieces]

    def drop_pieces(self) -> None:
        """What came of a reply is not going to be one."""
        self._pieces = []

    def release_events(self, event: Event) -> Iterator[Event]:
        """What is to be told now that this has happened."""
        match event:
            case StepProposed():
                pieces, self._pieces = self._pieces, []
                if awaits_judgement(event):
                    self._waiting = [*pieces, event]
                    return
                yield from pieces
            case ReplyJudged(verdict):
                yield from self._release_waiting(allowed=isinstance(verdict, Allow))
            case RunEnded() | AttemptFailed():
                yield from self._release_waiting(allowed=False)
                event = without_reply(event) or event
            case _:
                pass
        if self._waiting is None:
            yield event
        else:
            self._waiting.append(event)

    def _release_waiting(self, *, allowed: bool) -> Iterator[Event]:
        waiting, self._waiting = self._waiting or (), None
        for event in waiting:
            told = event if allowed else without_reply(event)
            if told is not None:
                yield told


def visible_facts(facts: Sequence[Fact], *, withhold: bool, live: bool) -> Iterator[Event]:
    """Recorded facts as they are shown. `live`: what waits to be judged will be told by itself."""
    for at, fact in enumerate(facts):
        if isinstance(fact, RunStarted | RunResumed) and fact.setup is not None:
            withhold = fact.setup.withhold_replies
        if isinstance(fact, StepProposed) and awaits_judgement(fact):
            after = _find_settling_fact(facts, at)
            if after is None and live and withhold:
                return
            verdict = after.verdict if isinstance(after, ReplyJudged) else None
            hush = isinstance(verdict, Deny) or (withhold and not isinstance(verdict, Allow))
        else:
            hush = withhold and isinstance(fact, AttemptFailed | RunEnded)
        shown = without_reply(fact) if hush else fact
        if shown is not None:
            yield shown


def _find_settling_fact(facts: Sequence[Fact], at: int) -> Fact | None:
    """What came of a reply."""
    rest = (fact for fact in facts[at + 1 :] if isinstance(fact, _SETTLING_FACTS))
    return next(rest, None)
