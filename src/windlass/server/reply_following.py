"""What each event of a session means for the replies of its model.

Protocols send text as it is written, and have to take it back when an attempt breaks off or a gate
denies the reply. What to send is worked out here, once for all of them.

Invariant: which attempts there are, and how they ended, follows from facts alone. So a client that
comes late, comes back, or asks another replica is given the same ones.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    Event,
    ReplyJudged,
    RunEnded,
    RunReleased,
    RunResumed,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import ThinkingPart
from windlass.core.projection.view import Projection, ReplyEntry
from windlass.core.verdicts import Allow


class AttemptKey(NamedTuple):
    """An attempt at a reply."""

    seq: int
    """The fact that began it; 0 if that is not known."""
    step: int
    number: int


class TextWritten(msgspec.Struct, frozen=True, gc=False):
    """More text or thinking of an attempt."""

    attempt: AttemptKey
    kind: Literal["text", "thinking"]
    text: str


class AttemptDropped(msgspec.Struct, frozen=True, gc=False):
    """An attempt came to no reply: what was given of it does not count."""

    attempt: AttemptKey
    shown: bool
    """Whether something of it was given here."""
    had_text: bool
    """Whether something of it may have been given to any client."""


class ReplyReplaced(msgspec.Struct, frozen=True, gc=False):
    """What was given of a reply does not count; this does. Empty: the reply was taken back."""

    text: str


class ReplySettled(msgspec.Struct, frozen=True, gc=False):
    """A reply is complete, and all of its text was given; or the run ended with a part of it."""

    attempt: AttemptKey
    entry: ReplyEntry


ReplyNews = TextWritten | AttemptDropped | ReplyReplaced | ReplySettled


class ReplyFollower:
    """Follows the replies of one session."""

    def __init__(self, view: Projection, *, judged_only: bool = False) -> None:
        """Begin after a view: a reply that is complete in it is not given again.

        `judged_only`: nothing of a typed reply is given before it was found to have its type.
        """
        self._judged_only = judged_only
        self._attempt: AttemptKey | None = None
        if view.attempt is not None and view.attempt.purpose == "main":
            self._attempt = _key_of(view.attempt)
        entry = _last_reply(view)
        self._awaits_judgement = entry is not None and entry.withheld and entry.verdict is None
        self._settled = entry.seq if entry is not None and not entry.withheld else 0
        """The last reply that was given."""
        self._chunks = 0
        self._texts: list[str] = []
        self._has_shown = False

    def follow(self, event: Event, view: Projection) -> Iterator[ReplyNews]:
        """Yield what an event means, given the view after it; costs only what is new."""
        match event:
            case TextDelta() | ThinkingDelta():
                yield from self._follow_text(view)
            case AttemptStarted(purpose="main"):
                yield from self._drop(view)
                self._attempt = _key_of(event)
            case AttemptFailed(partial=partial):
                yield from self._drop(view, had_text=bool(partial))
            case StepProposed():
                yield from self._take_reply(view)
            case ReplyJudged(verdict):
                yield from self._judge_reply(view, is_allowed=isinstance(verdict, Allow))
            case RunResumed() | RunReleased() if not self._awaits_judgement:
                # How much of the attempt was given is not on record, so it may have been.
                yield from self._drop(view, had_text=True)
            case RunEnded():
                entry = _last_reply(view)
                is_partial = entry is not None and entry.seq == event.seq
                if entry is not None and is_partial and not self._holds_back(view):
                    yield from self._settle(entry)
                yield from self._drop(view)
            case _:
                return

    def _holds_back(self, view: Projection) -> bool:
        typed = view.setup is not None and view.setup.output_schema is not None
        return self._judged_only and typed

    def _follow_text(self, view: Projection) -> Iterator[ReplyNews]:
        # Without its attempt, what streams is not a reply: a summary, for example.
        if view.reply is None or self._attempt is None or self._holds_back(view):
            return
        for chunk in view.reply.chunks.since(self._chunks):
            self._chunks += 1
            self._has_shown = True
            if chunk.kind == "text":
                self._texts.append(chunk.text)
            yield TextWritten(self._attempt, chunk.kind, chunk.text)

    def _take_reply(self, view: Projection) -> Iterator[ReplyNews]:
        entry = _last_reply(view)
        if entry is None:
            return
        if entry.withheld or self._holds_back(view):
            self._awaits_judgement = True
        else:
            yield from self._settle(entry)

    def _judge_reply(self, view: Projection, *, is_allowed: bool) -> Iterator[ReplyNews]:
        entry = _last_reply(view)
        if entry is None:
            return
        if not self._awaits_judgement:
            if entry.withheld and entry.seq == self._settled:
                yield ReplyReplaced("")
        elif is_allowed:
            yield from self._settle(entry)
        else:
            yield from self._drop(view)

    def _settle(self, entry: ReplyEntry) -> Iterator[ReplyNews]:
        attempt = self._attempt or AttemptKey(0, entry.step, 1)
        given = "".join(self._texts)
        if not self._has_shown:
            # It came as a whole: it was withheld, or nothing was passed on as it streamed.
            for part in entry.parts:
                if isinstance(part, ThinkingPart) and part.text:
                    yield TextWritten(attempt, "thinking", part.text)
        if not entry.text.startswith(given):
            yield ReplyReplaced(entry.text)
        elif len(entry.text) > len(given):
            yield TextWritten(attempt, "text", entry.text[len(given) :])
        self._settled = entry.seq
        self._forget_attempt()
        yield ReplySettled(attempt, entry)

    def _drop(self, view: Projection, *, had_text: bool = False) -> Iterator[ReplyNews]:
        if self._attempt is not None:
            had_text = bool(self._texts) or (had_text and not self._holds_back(view))
            yield AttemptDropped(self._attempt, self._has_shown, had_text)
        self._forget_attempt()

    def _forget_attempt(self) -> None:
        self._attempt = None
        self._awaits_judgement = False
        self._chunks = 0
        self._texts = []
        self._has_shown = False


def _key_of(fact: AttemptStarted) -> AttemptKey:
    return AttemptKey(fact.seq, fact.step, fact.attempt)


def _last_reply(view: Projection) -> ReplyEntry | None:
    replies = [entry for entry in view.tail if isinstance(entry, ReplyEntry)]
    return replies[-1] if replies else None
