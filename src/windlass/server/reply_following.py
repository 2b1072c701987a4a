"""What is new of the replies of a session, from one view of it to the next.

Protocols send text as it is written, and have to take it back when an attempt breaks off or a gate
denies the reply. What to send follows from two projections, so it is worked out here, once.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from windlass.core.messages import ThinkingPart
from windlass.core.projection.view import Projection, ReplyEntry


class TextWritten(msgspec.Struct, frozen=True, gc=False):
    """More text or thinking of the reply of a step."""

    step: int
    attempt: int
    kind: Literal["text", "thinking"]
    text: str


class ReplyReplaced(msgspec.Struct, frozen=True, gc=False):
    """What was shown of a reply does not count; this does. Empty: the reply is gone."""

    step: int
    text: str


class ReplySettled(msgspec.Struct, frozen=True, gc=False):
    """A reply is complete, and all of its text was given."""

    entry: ReplyEntry


ReplyNews = TextWritten | ReplyReplaced | ReplySettled


class ReplyFollower:
    """Follows the replies of one session."""

    def __init__(self, view: Projection) -> None:
        """Begin after a view: replies that are complete in it are not given again."""
        self._settled = {
            entry.seq
            for entry in view.entries
            if isinstance(entry, ReplyEntry) and not entry.withheld
        }
        self._attempt: tuple[int, int] | None = None
        self._chunks_given = 0
        self._texts: list[str] = []
        self._has_shown = False

    def follow_text(self, view: Projection) -> Iterator[ReplyNews]:
        """Yield what is new of the reply that is being written; costs only what is new."""
        reply = view.reply
        attempt = (reply.step, reply.attempt) if reply is not None else None
        if self._attempt is not None and attempt != self._attempt:
            yield from self._leave_attempt(view, self._attempt[0])
        if reply is None or attempt is None or not reply.step:
            # Without its attempt nobody can tell which reply this is: it comes whole with its step.
            return
        self._attempt = attempt
        for chunk in reply.chunks.since(self._chunks_given):
            self._chunks_given += 1
            self._has_shown = True
            if chunk.kind == "text":
                self._texts.append(chunk.text)
            yield TextWritten(reply.step, reply.attempt, chunk.kind, chunk.text)

    def follow_replies(self, view: Projection) -> Iterator[ReplyNews]:
        """Yield what is missing of replies that are complete now, or were taken back."""
        for entry in view.tail:
            if not isinstance(entry, ReplyEntry):
                continue
            if entry.withheld:
                if entry.seq in self._settled:
                    self._settled.discard(entry.seq)
                    yield ReplyReplaced(entry.step, "")
            elif entry.seq not in self._settled:
                self._settled.add(entry.seq)
                yield from self._settle(entry)

    def _leave_attempt(self, view: Projection, step: int) -> Iterator[ReplyNews]:
        """End an attempt: its reply is complete and follows, or what was shown of it goes."""
        self._attempt = None
        self._chunks_given = 0
        became_reply = any(
            isinstance(entry, ReplyEntry) and entry.step == step for entry in view.tail
        )
        if not became_reply and self._has_shown:
            self._forget_shown()
            yield ReplyReplaced(step, "")

    def _settle(self, entry: ReplyEntry) -> Iterator[ReplyNews]:
        given = "".join(self._texts)
        if not self._has_shown:
            # It came as a whole: it was withheld, or nobody passed on what streamed of it.
            for part in entry.parts:
                if isinstance(part, ThinkingPart) and part.text:
                    yield TextWritten(entry.step, 1, "thinking", part.text)
        self._forget_shown()
        if not entry.text.startswith(given):
            yield ReplyReplaced(entry.step, entry.text)
        elif len(entry.text) > len(given):
            yield TextWritten(entry.step, 1, "text", entry.text[len(given) :])
        yield ReplySettled(entry)

    def _forget_shown(self) -> None:
        self._texts = []
        self._has_shown = False
