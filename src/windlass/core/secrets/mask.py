"""Remove secrets from texts and facts, before anybody keeps, shows or reads them.

The law: a fact is masked once, before it is folded and written. So the state, the journal, the
watchers and the model all hold the same text, and none of it is a secret.
"""

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from typing import cast, final
from urllib.parse import quote, quote_plus

from typing_extensions import override

from windlass.core.events import Fact
from windlass.core.secrets import key_shapes
from windlass.core.secrets.fact_masks import FactMask
from windlass.core.secrets.secret import Secret
from windlass.core.setup import Setup

VALUE_CHARS_MIN = 6
"""A shorter value would be found in ordinary words."""
_ENCODED_CHARS_MIN = 8
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_HTML_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_HTML = _HTML_TEXT | str.maketrans({'"': "&quot;", "'": "&#x27;"})
_PERCENT = re.compile(r"%[0-9A-F]{2}")

MaskedSpan = tuple[int, int, str]
"""Start, end, and the marker that takes its place."""


@final
class Mask:
    """Masks known secret values, and text that looks like a key.

    A value is recognized in the forms in which it travels: plain, in JSON, in a URL, in HTML and in
    Base64. `Mask(key_like=False)` masks nothing.
    """

    __slots__ = ("_held", "forms", "key_like")

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
        for marker, value in known:
            for form in _encoded_forms(value) if len(value) >= VALUE_CHARS_MIN else ():
                forms.setdefault(form, marker)
        self.forms = tuple(sorted(forms.items(), key=lambda form: len(form[0])))
        """Each form of each value, the shortest first, with its marker."""
        self.key_like = key_like
        self._held = tuple(Secret(value) for _, value in known if hold)

    def combine_with(self, other: "Mask") -> "Mask":
        """Return this mask with the values of another one as well, for a sub-agent."""
        if not other.forms:
            return self
        both = Mask(key_like=self.key_like)
        forms = {**dict(other.forms), **dict(self.forms)}
        both.forms = tuple(sorted(forms.items(), key=lambda form: len(form[0])))
        both._held = self._held + other._held  # noqa: SLF001 - of the same class
        return both

    @override
    def __repr__(self) -> str:
        return f"Mask({len(self.forms)} forms of known values, key_like={self.key_like})"

    def mask_text(self, text: str) -> str:
        """Return the text without its secrets; the same object if it has none."""
        found = self.find_secrets(text) if self.may_hold_secret(text) else ()
        if found:
            return mask_spans(text, found, 0, len(text))
        return text

    def may_hold_secret(self, text: str) -> bool:
        """Whether a text may hold a secret: a cheap test that never misses one."""
        size = len(text)
        for form, _ in self.forms:
            if len(form) > size:
                break
            if form in text:
                return True
        return self.key_like and size > VALUE_CHARS_MIN and not key_shapes.has_no_key(text)

    def find_secrets(self, text: str) -> list[MaskedSpan]:
        """Return where the secrets of a complete text are."""
        spans = key_shapes.find_keys(text, whole=True).spans if self.key_like else []
        return merge_spans(
            [*self.find_known_values(text), *((start, end, SECRET_MARKER) for start, end in spans)]
        )

    def find_known_values(self, text: str) -> Iterator[MaskedSpan]:
        """Yield where known values are. They may overlap."""
        for form, marker in self.forms:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form), marker
                at = text.find(form, at + 1)

    def mask_fact(self, fact: Fact) -> Fact:
        """Return the fact without its secrets; the same object if it has none."""
        if not fact.masked_fields or not (self.forms or self.key_like):
            return fact
        return FactMask(self.mask_text).mask_fact(fact)

    def mask_setup(self, setup: Setup) -> Setup:
        """Return the setup without its secrets, as it will be recorded."""
        return FactMask(self.mask_text).mask_setup(setup)


SECRET_MARKER = "[secret]"  # noqa: S105 - the marker in the place of one


def _marker_for(name: str) -> str:
    name = _NAME.sub("-", name).strip("-")[:40]
    if name:
        return f"[secret: {name}]"
    return SECRET_MARKER


def _encoded_forms(value: str) -> Iterator[str]:
    """Yield the value in each way in which it may be written."""
    yield value
    for escaped in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        yield escaped[1:-1]
        yield escaped[1:-1].replace("/", r"\/")
    for escaped in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield escaped
        yield _PERCENT.sub(lambda found: found[0].lower(), escaped)
    yield from (value.translate(_HTML), value.translate(_HTML_TEXT))
    data = value.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        # In the middle of other data, only those characters are certain that encode nothing else.
        encoded = b64encode(b"\0" * before + data).decode()
        rest = (before + len(data)) % 3
        core = encoded[(0, 2, 3)[before] : len(encoded) - (0, 3, 2)[rest]]
        if len(core) >= _ENCODED_CHARS_MIN:
            yield core
            yield core.replace("+", "-").replace("/", "_")


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
