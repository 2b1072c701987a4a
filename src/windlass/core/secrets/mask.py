"""Remove secrets from texts and facts, before anybody keeps, shows or reads them.

The law: a fact is masked once, before it is folded and written. So the state, the journal, the
watchers and the model all hold the same text, and none of it is a secret.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import cast, final

from typing_extensions import override

from windlass.core.events import CallAnswered, Fact, RunStarted, SteeringGiven
from windlass.core.messages import ToolSpec
from windlass.core.secrets import key_shapes
from windlass.core.secrets.fact_masks import FactMask
from windlass.core.secrets.joined_lines import join_lines, may_be_broken, squeeze_lines
from windlass.core.secrets.secret import Secret
from windlass.core.secrets.value_forms import broken_forms, encoded_forms
from windlass.core.setup import Setup

VALUE_CHARS_MIN = 6
"""A shorter value would be found in ordinary words."""
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

_FORM_SIGNS = ("%", "\\", "&", "\0", "=")
"""Most texts contain none of these, so the many forms with one of them are rarely searched for."""

MaskedSpan = tuple[int, int, str]
"""Start, end, and the marker that takes its place."""


@final
class Mask:
    """Masks known secret values, and text that looks like a key.

    A value is recognized in the forms in which it travels: plain, in JSON, in a URL, in HTML, in a
    mail, in hexadecimal, in octal, in Base64 and in Base32, in UTF-8 and in UTF-16, also if it is
    broken into lines. `Mask(key_like=False)` masks nothing.
    """

    __slots__ = ("_broken_forms", "_clean_setup", "_forms_by_sign", "_held", "forms", "key_like")

    def __init__(
        self,
        values: Mapping[str, str] | Collection[str | tuple[str, str]] = (),
        *,
        key_like: bool = True,
        hold: bool = True,
    ) -> None:
        """Build a mask.

        values: secrets, each with a name for its marker or without one.
        key_like: also mask text that looks like a key.
        hold: keep the values as Secrets, so that logs do not show them either.
        """
        listed = (
            cast("Mapping[str, str]", values).items() if isinstance(values, Mapping) else values
        )
        named = [("", entry) if isinstance(entry, str) else entry for entry in listed]
        known = [(_marker_for(name), value.strip()) for name, value in named]
        forms: dict[str, str] = {}
        broken: dict[str, str] = {}
        for marker, value in known:
            if len(value) < VALUE_CHARS_MIN:
                continue
            for form in encoded_forms(value):
                forms.setdefault(form, marker)
            for form in filter(may_be_broken, broken_forms(value)):
                broken.setdefault(form, marker)
        self._set_forms(forms, broken)
        self.key_like = key_like
        self._held = tuple(Secret(value) for _, value in known if hold)

    def _set_forms(self, forms: dict[str, str], broken: dict[str, str]) -> None:
        self._clean_setup: Setup | None = None
        """The last setup that was masked. All runs of an agent record the same one, tool by tool,
        so it is searched once."""
        self.forms = tuple(sorted(forms.items(), key=lambda form: len(form[0])))
        """Each form of each value, the shortest first, with its marker."""
        by_sign: dict[str, list[tuple[str, str]]] = {}
        for form, marker in self.forms:
            sign = next((sign for sign in _FORM_SIGNS if sign in form), "")
            by_sign.setdefault(sign, []).append((form, marker))
        self._forms_by_sign = tuple((sign, tuple(found)) for sign, found in by_sign.items())
        """The same, by what a text must contain to hold any of them."""
        self._broken_forms = tuple(broken.items())
        """Those that programs break into lines."""

    def combine_with(self, other: "Mask") -> "Mask":
        """Return this mask with the values of another one as well, for a sub-agent."""
        if not other.forms:
            return self
        both = Mask(key_like=self.key_like)
        forms = {**dict(other.forms), **dict(self.forms)}
        broken = {**dict(other._broken_forms), **dict(self._broken_forms)}  # noqa: SLF001 - as below
        both._set_forms(forms, broken)
        both._held = self._held + other._held  # noqa: SLF001 - of the same class
        return both

    @override
    def __repr__(self) -> str:
        return f"Mask({len(self.forms)} forms of known values, key_like={self.key_like})"

    def mask_text(self, text: str) -> str:
        """Return the text without its secrets; the same object if it has none."""
        # A long text is searched only once, and window by window.
        is_long = len(text) > key_shapes.WINDOW_CHARS
        found = self.find_secrets(text) if is_long or self.may_hold_secret(text) else ()
        if found:
            return mask_spans(text, found, 0, len(text))
        return text

    def may_hold_secret(self, text: str) -> bool:
        """Whether a text may hold a secret: a cheap test that never misses one."""
        size = len(text)
        for sign, forms in self._forms_by_sign:
            if sign not in text:
                continue
            for form, _ in forms:
                if len(form) > size:
                    break
                if form in text:
                    return True
        if self._may_hold_broken(text):
            return True
        return self.key_like and size > VALUE_CHARS_MIN and not key_shapes.has_no_key(text)

    def find_secrets(self, text: str) -> list[MaskedSpan]:
        """Return where the secrets of a complete text are."""
        if self.key_like:
            spans = key_shapes.find_keys(text, whole=True).spans
        else:
            spans = []
        return merge_spans(
            [*self.find_known_values(text), *((start, end, SECRET_MARKER) for start, end in spans)]
        )

    def find_known_values(self, text: str) -> Iterator[MaskedSpan]:
        """Yield where known values are. They may overlap."""
        longest = len(self.forms[-1][0]) if self.forms else 0
        for first in range(0, len(text) if longest else 0, key_shapes.WINDOW_CHARS):
            size = min(key_shapes.WINDOW_CHARS, len(text) - first)
            # A value that begins in the window may end behind it.
            window = text[first : first + size + longest - 1]
            for form, marker in self._forms_for(window):
                at = window.find(form)
                while 0 <= at < size:
                    yield first + at, first + at + len(form), marker
                    at = window.find(form, at + 1)
            # One that is broken into lines is longer by its breaks.
            wide = text[first : first + size + 2 * longest]
            for start, end, marker in self._find_broken_values(wide):
                if start < size:
                    yield first + start, first + end, marker

    def _find_broken_values(self, text: str) -> Iterator[MaskedSpan]:
        """Yield where known values are that breaks of lines cut in two."""
        if not self._may_hold_broken(text):
            return
        for joined in join_lines(text):
            for form, marker in self._broken_forms:
                at = joined.text.find(form)
                while at >= 0:
                    start = joined.original_place(at)
                    yield start, joined.original_place(at + len(form) - 1) + 1, marker
                    at = joined.text.find(form, at + 1)

    def _may_hold_broken(self, text: str) -> bool:
        """Whether a text may hold a value that is broken into lines: a cheap test."""
        for joined in squeeze_lines(text) if self._broken_forms else ():
            if any(form in joined for form, _ in self._broken_forms):
                return True
        return False

    def _forms_for(self, text: str) -> Iterator[tuple[str, str]]:
        for sign, forms in self._forms_by_sign:
            if sign in text:
                yield from forms

    def mask_fact(
        self, fact: Fact, find_tool: Callable[[str], ToolSpec | None] | None = None
    ) -> Fact:
        """Return the fact without its secrets; the same object if it has none.

        `find_tool` finds the tools of the run: the names of other calls are masked as well.
        """
        if not fact.masked_fields or not (self.forms or self.key_like):
            return fact
        masked = FactMask(self.mask_text, find_tool, self._clean_setup).mask_fact(fact)
        if isinstance(masked, RunStarted) and masked.setup is not None:
            self._clean_setup = masked.setup
        return masked

    def mask_foreign(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield the facts of a journal, masked where somebody without this mask may have spoken.

        An answer needs nothing but the journal, so whoever wrote it did not know the secrets of
        the agent. All other facts were masked by the agent when they were written.
        """
        for fact in facts:
            if isinstance(fact, CallAnswered | SteeringGiven):
                yield self.mask_fact(fact)
            else:
                yield fact

    def mask_setup(self, setup: Setup) -> Setup:
        """Return the setup without its secrets, as it will be recorded."""
        return FactMask(self.mask_text).mask_setup(setup)


SECRET_MARKER = "[secret]"  # noqa: S105 - the marker in the place of one


def _marker_for(name: str) -> str:
    name = _NAME.sub("-", name).strip("-")[:40]
    if name:
        return f"[secret: {name}]"
    return SECRET_MARKER


def merge_spans(found: list[MaskedSpan]) -> list[MaskedSpan]:
    """Merge spans that overlap. A marker with a name wins over one without."""
    spans: list[MaskedSpan] = []
    for start, end, marker in sorted(found):
        if spans and start < spans[-1][1]:
            first, last, earlier = spans[-1]
            best = marker if earlier == SECRET_MARKER else earlier
            spans[-1] = (first, max(last, end), best)
        else:
            spans.append((start, end, marker))
    return spans


def mask_spans(text: str, found: Collection[MaskedSpan], start: int, end: int) -> str:
    """Return a stretch of a text with these spans masked."""
    pieces: list[str] = []
    for first, last, marker in found:
        if last <= start or first >= end:
            continue
        pieces += (text[start : max(start, first)], marker)
        start = last
    return "".join((*pieces, text[start:end]))
