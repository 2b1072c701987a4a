"""Mask a text that comes in pieces, as it comes.

Invariant: a piece that cannot hold a secret is passed on at once and unchanged. Of the others, only
the part that may still become a secret is held back, and only as long as it may.
"""

from typing import final

from windlass.core.secrets import key_shapes
from windlass.core.secrets.joined_lines import may_be_broken, squeeze_tail
from windlass.core.secrets.mask import SECRET_MARKER, Mask, MaskedSpan, mask_spans, merge_spans

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
        self._any = key_shapes.compile_any(self._forms) if self._forms else None
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
    """Whether a whole form begins here, also if it is broken into lines."""
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
