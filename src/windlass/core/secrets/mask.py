"""Remove secrets from texts and facts, before they are kept, shown or read.

Invariant: a fact is masked once, before it is folded and written. So the state, the journal, the
watchers and the model all hold the same text, and none of it is a secret.

`Secret` is a key that cannot be printed by accident.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import cast, final
from weakref import WeakValueDictionary

from typing_extensions import override

from windlass.core.events import CallAnswered, Fact, SteeringGiven
from windlass.core.messages import ToolSpec
from windlass.core.secrets import key_shapes
from windlass.core.secrets.fact_masks import FactMask, join_texts
from windlass.core.secrets.value_forms import (
    broken_forms,
    encoded_forms,
    join_lines,
    may_be_broken,
    squeeze_lines,
)
from windlass.core.setup import Setup


@final
class Secret:
    """Holds a secret value. Only `reveal` returns it; `repr` and `str` do not show it."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        _live_secrets[id(self)] = self

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    @override
    def __hash__(self) -> int:
        return hash(self._value)

    @override
    def __repr__(self) -> str:
        return "Secret(****)"

    @override
    def __reduce__(self) -> str:
        raise TypeError("a Secret cannot be pickled")


# Keyed by identity: of two equal secrets, one may be collected before the other.
_live_secrets: WeakValueDictionary[int, Secret] = WeakValueDictionary()


def live_secret_values() -> frozenset[str]:
    """Return the values of all secrets that this process still holds. No log may show them."""
    return frozenset(secret.reveal() for secret in tuple(_live_secrets.values()))


VALUE_CHARS_MIN = 6
"""A shorter value would be found in ordinary words."""
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_WRITTEN_BY_ANYONE = (CallAnswered, SteeringGiven)

_FORM_SIGNS = ("%", "\\u", "\\x", "\\0", "\\1", "\\", "&", "\0", "=")
"""Most texts contain none of these, so the many forms with one of them are rarely searched for."""

_WORD_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_WORD_CHAR = b"a"
_WORD_TABLE = bytes(_WORD_CHAR[0] if byte in _WORD_CHARS else 0 for byte in range(256))
"""Makes all characters of words the same, so that the longest word is found by a plain search."""

MaskedSpan = tuple[int, int, str]
"""Start, end, and the marker that takes its place."""


@final
class Mask:
    """Masks known secret values, and text that looks like a key.

    A value is recognized in the forms in which it travels: plain, in JSON, in a URL, in HTML, in a
    mail, in hexadecimal, in octal, in Base64 and in Base32, in UTF-8 and in UTF-16, even if it is
    broken into lines. `Mask(key_like=False)` masks nothing.
    """

    __slots__ = (
        "_broken_bytes",
        "_broken_forms",
        "_clean_setup",
        "_forms_by_sign",
        "_held",
        "_word_forms",
        "forms",
        "key_like",
    )

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
        words: dict[int, list[tuple[str, str]]] = {}
        for form, marker in self.forms:
            if form.isascii() and not form.encode().translate(None, _WORD_CHARS):
                words.setdefault(len(form), []).append((form, marker))
                continue
            sign = next((sign for sign in _FORM_SIGNS if sign in form), "")
            by_sign.setdefault(sign, []).append((form, marker))
        self._forms_by_sign = tuple((sign, tuple(found)) for sign, found in by_sign.items())
        """The same, by what a text must contain to hold any of them."""
        self._word_forms = tuple((size, tuple(found)) for size, found in words.items())
        """Those that are one long word, such as Base64, by length: few texts have words as long."""
        self._broken_forms = tuple(broken.items())
        """Those that programs break into lines."""
        self._broken_bytes = tuple(form.encode("utf-8", "surrogatepass") for form in broken)

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
        if self.forms:
            for form, _ in self._forms_for(text):
                if len(form) <= size and form in text:
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
        # One look at the whole text for each form: most texts hold none of them.
        forms = [known for known in self._forms_for(text) if known[0] in text]
        may_hold_broken = self._may_hold_broken(text)
        is_due = forms or may_hold_broken
        for first in range(0, len(text) if is_due else 0, key_shapes.WINDOW_CHARS):
            size = min(key_shapes.WINDOW_CHARS, len(text) - first)
            # A value that begins in the window may end behind it.
            window = text[first : first + size + longest - 1]
            for form, marker in forms:
                at = window.find(form)
                while 0 <= at < size:
                    yield first + at, first + at + len(form), marker
                    at = window.find(form, at + 1)
            # One that is broken into lines is longer by its breaks.
            wide = text[first : first + size + 2 * longest] if may_hold_broken else ""
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
        # A search for one character is many times as fast as one for two.
        if not self._broken_forms or ("\n" not in text and "\\" not in text):
            return False
        return any(
            form in squeezed for squeezed in squeeze_lines(text) for form in self._broken_bytes
        )

    def _forms_for(self, text: str) -> list[tuple[str, str]]:
        """Return the forms that a text may hold, by its signs and by its longest word."""
        possible: list[tuple[str, str]] = []
        for sign, forms in self._forms_by_sign:
            if sign in text:
                possible += forms
        shortest = self._word_forms[0][0] if self._word_forms else 0
        if not shortest or len(text) < shortest:
            return possible
        words = text.encode("ascii", "replace").translate(_WORD_TABLE)
        for size, forms in self._word_forms:
            if _WORD_CHAR * size not in words:
                # All others are longer.
                break
            possible += forms
        return possible

    def mask_fact(
        self, fact: Fact, find_tool: Callable[[str], ToolSpec | None] | None = None
    ) -> Fact:
        """Return the fact without its secrets; the same object if it has none.

        `find_tool` finds the tools of the run: the names of other calls are masked as well.
        """
        if not fact.masked_fields or not (self.forms or self.key_like):
            return fact
        # One look at all texts together is enough for nearly every fact of a step.
        joined = join_texts(fact, self._clean_setup)
        is_short = joined is not None and len(joined) <= key_shapes.WINDOW_CHARS
        if joined == "" or (joined and is_short and not self.may_hold_secret(joined)):
            return fact
        return FactMask(self.mask_text, find_tool, self._clean_setup).mask_fact(fact)

    def mask_foreign(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield the facts of a journal, masked where the writer may not have had this mask.

        An answer needs nothing but the journal, so its writer may not have known the secrets of the
        agent. All other facts were masked by the agent when they were written.
        """
        for fact in facts:
            if isinstance(fact, _WRITTEN_BY_ANYONE):
                yield self.mask_fact(fact)
            else:
                yield fact

    def mask_setup(self, setup: Setup) -> Setup:
        """Return the setup without its secrets, as it will be recorded."""
        self._clean_setup = FactMask(self.mask_text).mask_setup(setup)
        return self._clean_setup


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
