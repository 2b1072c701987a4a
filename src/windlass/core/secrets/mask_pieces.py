"""Mask the pieces of a model's stream, and the progress of tools, as they come.

The pieces of one block of a reply are masked as one text, so that a secret that was cut into pieces
is found. A new block, like a new attempt, starts again.

Invariant: a piece that cannot hold a secret is passed on at once and unchanged. Of the others, only
the part that may still become a secret is held back, and only as long as it may.
"""

import re
from collections.abc import Sequence
from typing import final

from msgspec.structs import replace

from windlass.core.events import (
    CallDelta,
    CallProgress,
    ContentPiece,
    Delta,
    Fact,
    NestedEvent,
    ReplyEnd,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.secrets import key_shapes
from windlass.core.secrets.mask import SECRET_MARKER, Mask, MaskedSpan, mask_spans, merge_spans
from windlass.core.secrets.value_forms import may_be_broken, squeeze_tail

HELD_CHARS_MAX = 8_192
"""No key is longer than this, so a longer text is not held back."""
_CONTEXT = key_shapes.PREFIX_CHARS_MAX + 4
"""Characters that were passed on and may still be the prefix of a key."""
_HEAD_CHARS = 2
"""A word that begins with so much of a known value is held back; inside a word, with twice that.

A shorter beginning is shown, because otherwise nearly every piece would wait for the next one.
"""
_GLANCE_CHARS = 512


@final
class ValueHeads:
    """Finds the beginnings of known values at the end of an unfinished text."""

    __slots__ = ("_any", "_forms", "_longest")

    def __init__(self, mask: Mask) -> None:
        self._forms: dict[str, list[str]] = {}
        for form, _ in mask.forms:
            self._forms.setdefault(form[:_HEAD_CHARS], []).append(form)
        # Grouped by the first letter, so that few are tried.
        by_first: dict[str, list[str]] = {}
        for head in self._forms:
            by_first.setdefault(re.escape(head[0]), []).append(re.escape(head[1:]))
        pattern = "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_first.items())
        self._any = re.compile(pattern) if pattern else None
        self._longest = len(mask.forms[-1][0]) if mask.forms else 0

    def find_open_head(self, text: str, since: int) -> int:
        """Return from where the end of a text may be the beginning of a known value."""
        size = len(text)
        reach = self._longest
        if "\n" in text:
            # Breaks of lines make a value longer.
            reach *= 2
        for at in range(max(0, since, size - reach), size - _HEAD_CHARS + 1):
            forms = self._forms.get(text[at : at + _HEAD_CHARS])
            if forms is not None and _begins_value(text, at, forms):
                return at
        return size

    def has_no_head(self, text: str, since: int) -> bool:
        """Whether no known value begins in a short text."""
        since = max(0, since)
        if self._any is None or self._any.search(text, since) is None:
            return True
        for at in range(since, len(text) - _HEAD_CHARS + 1):
            forms = self._forms.get(text[at : at + _HEAD_CHARS])
            if forms is None:
                continue
            if _begins_value(text, at, forms) or _holds_value(text, at, forms):
                return False
        return True


def _begins_value(text: str, at: int, forms: list[str]) -> bool:
    """Whether the text from here on is the beginning of a form, and long enough to tell."""
    inside = at > 0 and text[at - 1].isalnum()
    tail = text[at:]
    if len(tail) < (2 * _HEAD_CHARS if inside else _HEAD_CHARS):
        return False
    if any(form.startswith(tail) and form != tail for form in forms):
        return True
    joined = squeeze_tail(tail)
    if joined is tail:
        return False
    broken = (form for form in forms if may_be_broken(form))
    return any(form.startswith(joined) and form != joined for form in broken)


def _holds_value(text: str, at: int, forms: list[str]) -> bool:
    """Whether a whole form begins here, even if it is broken into lines."""
    if any(text.startswith(form, at) for form in forms):
        return True
    tail = text[at:]
    joined = squeeze_tail(tail)
    return joined is not tail and any(joined.startswith(form) for form in forms)


@final
class TextStreamMask:
    """Masks one text that comes in pieces."""

    __slots__ = ("_heads", "_mask", "_passed", "_text")

    def __init__(self, mask: Mask, heads: ValueHeads) -> None:
        self._mask = mask
        self._heads = heads
        self._text = ""
        """The end of the text so far."""
        self._passed = 0
        """How many characters of that were passed on."""

    @property
    def is_holding(self) -> bool:
        """Whether something is held back."""
        return self._passed != len(self._text)

    def feed(self, piece: str) -> str:
        """Return what may be shown now; the piece itself if nothing is in doubt."""
        if self.pass_harmless(piece):
            return piece
        return self._release_text(self._text + piece, self._passed, whole=False)

    def pass_harmless(self, more: str) -> bool:
        """Take more text if nothing in it is in doubt; otherwise return False, and take nothing.

        It may consist of several pieces: none of them can then hold a part of a secret.
        """
        text = self._text + more
        passed = self._passed
        if passed != len(self._text) or len(text) > _GLANCE_CHARS:
            return False
        mask = self._mask
        if mask.key_like and not key_shapes.has_no_key(text, passed):
            return False
        if mask.forms and not self._heads.has_no_head(text, passed - 2 * _HEAD_CHARS):
            return False
        self._text = text[-_CONTEXT:]
        self._passed = len(self._text)
        return True

    def end(self) -> str:
        """Return what was held back, now that the text is complete."""
        if self._passed == len(self._text):
            return ""
        return self._release_text(self._text, self._passed, whole=True)

    def _release_text(self, text: str, passed: int, *, whole: bool) -> str:
        found, hold, keep = self._find_spans(text, passed, whole=whole)
        if len(text) - hold > HELD_CHARS_MAX:
            found, hold, keep = self._find_spans(text, passed, whole=True)
        released = mask_spans(text, found, passed, hold)
        cut = max(0, min(hold, keep, len(text) - _CONTEXT))
        self._text = text[cut:]
        self._passed = hold - cut
        return released

    def _find_spans(
        self, text: str, passed: int, *, whole: bool
    ) -> tuple[list[MaskedSpan], int, int]:
        """Return the spans to mask, the end of what may be shown, and the start of what is kept."""
        size = len(text)
        spans: list[key_shapes.Span] = []
        hold = size
        keep = size
        if self._mask.key_like:
            spans, hold, keep = key_shapes.find_keys(text, whole=whole)
        if not whole:
            hold = min(hold, self._heads.find_open_head(text, passed - 2 * _HEAD_CHARS))
        found = merge_spans(
            [*self._mask.find_known_values(text), *((a, b, SECRET_MARKER) for a, b in spans)]
        )
        # A span that may still grow into a longer one waits with it.
        for start, end, _ in reversed(found):
            hold = start if start < hold < end else hold
        # The prefix of a key that still grows is kept until it is known what it is.
        return found, max(hold, passed), min(hold, keep)


_GROUP_PIECES = 64
"""How many pieces are looked at as one text. A few of them are looked at faster than many."""


@final
class PieceMask:
    """Masks the pieces of one session for its watchers."""

    __slots__ = (
        "_call_streams",
        "_heads",
        "_mask",
        "_name_streams",
        "_progress_streams",
        "_text_stream",
        "_thinking",
    )

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._heads = ValueHeads(mask)
        self._progress_streams: dict[str, TextStreamMask] = {}
        self.start_attempt()

    def start_attempt(self) -> None:
        """Forget the attempt before: its texts do not continue."""
        self._text_stream = TextStreamMask(self._mask, self._heads)
        self._thinking = False
        self._call_streams: dict[int | str, TextStreamMask] = {}
        self._name_streams: dict[int | str, TextStreamMask] = {}

    def mask_pieces(self, pieces: Sequence[ContentPiece]) -> Sequence[ContentPiece]:
        """Return what may be shown after these pieces: they themselves if nothing is in doubt."""
        if len(pieces) == 1:
            return self.mask_piece(pieces[0])
        shown: list[ContentPiece] = []
        at = 0
        while at < len(pieces):
            # Pieces that continue one text are searched together.
            texts, stream = self._join_group(pieces, at)
            group = pieces[at : at + len(texts)] if stream else pieces[at : at + 1]
            at += len(group)
            if stream is not None and stream.pass_harmless("".join(texts)):
                shown += group
            else:
                for piece in group:
                    shown += self.mask_piece(piece)
        return shown

    def _join_group(
        self, pieces: Sequence[ContentPiece], at: int
    ) -> tuple[list[str], TextStreamMask | None]:
        """Return the texts of the pieces from `at` that continue one text, and its stream.

        There is no stream if the first of them begins another text.
        """
        first = pieces[at]
        group = pieces[at : at + _GROUP_PIECES]
        texts: list[str] = []
        if type(first) is CallDelta:
            index = first.index
            # The first piece of a call opens its texts, and the first arguments end its name.
            if index not in self._call_streams or self._name_streams[index].is_holding:
                return texts, None
            for piece in group:
                if type(piece) is not CallDelta or piece.index != index or piece.name:
                    break
                texts.append(piece.arguments)
            return texts, self._call_streams[index] if texts else None
        for piece in group:
            if self._thinking:
                if type(piece) is not ThinkingDelta or piece.signature is not None:
                    break
            elif type(piece) is not TextDelta:
                break
            texts.append(piece.text)
        return texts, self._text_stream if texts else None

    def mask_piece(self, piece: ContentPiece) -> Sequence[ContentPiece]:
        """Return what may be shown after this piece: the piece itself if nothing is in doubt."""
        match piece:
            case TextDelta(text):
                ended = self._end_block(thinking=False) if self._thinking else ()
                masked = self._text_stream.feed(text)
                if masked is text:
                    return (*ended, piece)
                return (*ended, TextDelta(masked)) if masked else ended
            case ThinkingDelta(text, signature):
                ended = () if self._thinking else self._end_block(thinking=True)
                masked = self._text_stream.feed(text)
                if signature is not None:
                    # A signature ends its block.
                    masked += self._text_stream.end()
                    self._text_stream = TextStreamMask(self._mask, self._heads)
                if not masked and not signature:
                    return ended
                return (*ended, piece if masked == text else ThinkingDelta(masked, signature))
            case CallDelta():
                return self._mask_call_delta(piece)
            case UsageDelta():
                return (piece,)
            case ReplyEnd():
                rest = [*self._end_block(thinking=self._thinking)]
                for at, stream in self._call_streams.items():
                    name = self._name_streams[at].end() or None
                    arguments = stream.end()
                    if not (arguments or name):
                        continue
                    if isinstance(at, int):
                        rest.append(CallDelta(index=at, name=name, arguments=arguments))
                    else:
                        rest.append(CallDelta(id=str(at) or None, name=name, arguments=arguments))
                return rest

    def _end_block(self, *, thinking: bool) -> Sequence[ContentPiece]:
        """Begin another block of text or thinking; return what was held back of the one before."""
        rest = self._text_stream.end()
        ended: Sequence[ContentPiece] = ()
        if rest:
            ended = (ThinkingDelta(rest) if self._thinking else TextDelta(rest),)
        self._text_stream = TextStreamMask(self._mask, self._heads)
        self._thinking = thinking
        return ended

    def _mask_call_delta(self, piece: CallDelta) -> Sequence[ContentPiece]:
        at = piece.index if piece.index is not None else piece.id or ""
        ended: Sequence[ContentPiece] = ()
        if at not in self._call_streams:
            ended = self._end_block(thinking=self._thinking)
            self._call_streams[at] = TextStreamMask(self._mask, self._heads)
            self._name_streams[at] = TextStreamMask(self._mask, self._heads)
        arguments = piece.arguments and self._call_streams[at].feed(piece.arguments)
        # The model may have made the name up, from a secret. It is complete once arguments begin.
        name = self._name_streams[at].feed(piece.name) if piece.name else ""
        name = (name + self._name_streams[at].end() if piece.arguments else name) or None
        if arguments == piece.arguments and name == piece.name:
            return (*ended, piece)
        if arguments or piece.id or name or piece.signature:
            return (*ended, replace(piece, arguments=arguments, name=name))
        return ended

    def mask_delta(self, delta: Delta) -> Delta | None:
        """Return what may be shown of a delta that is not a piece of a reply; None if nothing."""
        match delta:
            case CallProgress():
                return self.mask_progress(delta)
            case NestedEvent():
                return self.mask_nested(delta)
            case _:
                return delta

    def mask_nested(self, delta: NestedEvent) -> NestedEvent:
        """Mask what a sub-agent masked already: this session may know more secrets."""
        event = delta.event
        match event:
            case TextDelta(text) | ThinkingDelta(text) | CallProgress(text=text):
                masked = self._mask.mask_text(text)
                return (
                    delta if masked is text else replace(delta, event=replace(event, text=masked))
                )
            case CallDelta(arguments=text):
                masked = self._mask.mask_text(text)
                if masked is text:
                    return delta
                return replace(delta, event=replace(event, arguments=masked))
            case NestedEvent():
                return replace(delta, event=self.mask_nested(event))
            case _ if isinstance(event, Fact):
                return replace(delta, event=self._mask.mask_fact(event))
            case _:
                return delta

    def mask_progress(self, delta: CallProgress) -> CallProgress | None:
        """Return what may be shown of a tool's progress; None if nothing."""
        call_id = delta.call_id
        text = delta.text
        if call_id not in self._progress_streams:
            self._progress_streams[call_id] = TextStreamMask(self._mask, self._heads)
        masked = self._progress_streams[call_id].feed(text)
        if masked is text:
            return delta
        if masked:
            return replace(delta, text=masked)
        return None

    def end_progress(self, call_id: str) -> CallProgress | None:
        """Return what was held back of a call's progress, now that the call is over."""
        stream = self._progress_streams.pop(call_id, None)
        rest = stream.end() if stream else ""
        return CallProgress(call_id, rest) if rest else None
