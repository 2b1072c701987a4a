"""What is known: notes, with where each came from, whose it is and how far it can be trusted.

The law: a note is found only by who asks in its scope, and what is found says where it came from.
The same text in the same scope is stored once, with all the sources that it came from; it is gone
when the last of them is.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError, ForOperator
from windlass.knowledge.chunks import TITLE_CHARS_MAX, TextChunk, TextFormat, split_text

FOUND_PER_NOTE = 2
"""Pieces of one note in an answer: a long document must not fill it alone."""

CANDIDATES_PER_FOUND = 6
"""How many more are looked at than asked for: some are of the same note."""

LabelUpdate = Literal["keep", "replace"]
"""A label stays for as long as its source does; only what is read anew may come without."""
ScopeKind = Literal["user", "project", "session"]
Taint = Literal["untrusted", "private"]
TAINTS: tuple[Taint, ...] = ("untrusted", "private")


class KnowledgeFailed(ForOperator):
    """The store did not take or give a note. A run goes on without."""


class Scope(msgspec.Struct, frozen=True, order=True):
    """Whose a note is: `Scope("user", "ann")` shares nothing with `Scope("user", "bob")`."""

    kind: ScopeKind
    key: str

    def __post_init__(self) -> None:
        if self.kind not in ("user", "project", "session"):
            raise ConfigError(f"scope {self.kind!r}: it is 'user', 'project' or 'session'")
        # An empty key would be one scope that all share who forgot to set theirs.
        if not self.key.strip() or clean_text(self.key) != self.key:
            raise ConfigError(
                f"scope {self.kind!r}: {self.key!r} is no key for it; name whose it is"
            )

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Source(msgspec.Struct, frozen=True):
    """Where a note came from: a place (a file, an address), or a call in a session."""

    place: str = ""
    session: str = ""
    call: str = ""

    def __post_init__(self) -> None:
        if not (self.place or self.session):
            raise ConfigError("a source names a place, or a session: nothing is known from nowhere")

    @override
    def __str__(self) -> str:
        said = f"session {self.session}" + (f", call {self.call}" if self.call else "")
        return self.place or said


class Note(msgspec.Struct, frozen=True):
    """Something to keep."""

    text: str
    scope: Scope
    source: Source
    title: str = ""
    labels: frozenset[Taint] = frozenset()
    expires_at: float | None = None
    """Seconds since the epoch; from then on it is not found."""
    format: TextFormat = "text"
    digest: str = ""
    """Of what it was made from, to tell whether that has changed. The text's own unless told."""


class FoundNote(msgspec.Struct, frozen=True):
    """A piece of a note that answers a query."""

    id: str
    """The note's: what `forget` takes."""
    text: str
    title: str
    score: float
    """The higher the better. Scores of two answers cannot be compared."""
    scope: Scope
    sources: tuple[Source, ...]
    labels: frozenset[Taint]
    created: float
    expires_at: float | None
    digest: str


class NoteEntry(msgspec.Struct, frozen=True):
    """A note as it is stored: named by what it says and whose it is, and cut into pieces."""

    id: str
    note: Note
    title: str
    digest: str
    chunks: Sequence[TextChunk]
    place: str
    session: str
    call: str


class RecallQuery(NamedTuple):
    """What is looked for, and who asks."""

    words: list[str]
    vector: bytes | None
    model: str
    scopes: Sequence[Scope]
    taints: Collection[Taint]
    now: float


class NoteOrigin(NamedTuple):
    """One source of a note, as it is stored."""

    place: str
    session: str
    call: str
    digest: str
    untrusted: bool
    private: bool
    expires_at: float | None


class Knowledge(Protocol):
    """Where notes are kept. Each method raises KnowledgeFailed, and no other error of the store."""

    async def remember(self, *notes: Note) -> list[str]:
        """Keep the notes; their ids, once they are durable. Kept twice is kept once."""
        ...

    async def replace_notes(self, *notes: Note) -> list[str]:
        """Keep the notes, and forget what else their places held before: one note to a place."""
        ...

    async def recall(
        self,
        query: str,
        scopes: Sequence[Scope],
        *,
        limit: int = 8,
        taints: Collection[Taint] = TAINTS,
    ) -> list[FoundNote]:
        """What answers the query in these scopes, best first.

        Any text is a query; one without words finds nothing. Notes with a label that is not among
        `taints` are left out.
        """
        ...

    async def forget(self, note: str) -> bool:
        """Forget a note, wherever it came from; whether there was one."""
        ...

    async def forget_places(self, scope: Scope, places: Sequence[str]) -> int:
        """Forget what only these places hold; how many notes that were."""
        ...

    async def list_places(self, scope: Scope, under: str = "") -> dict[str, str]:
        """The places that begin so, and the digest of what each held."""
        ...

    async def delete_expired(self, now: float | None = None) -> int:
        """Delete what has expired; how many notes that were. They are not found in any case."""
        ...


def make_entry(note: Note) -> NoteEntry:
    """A note, ready to be stored."""
    text, scope = clean_text(note.text), note.scope
    title = " ".join(clean_text(note.title).split())[:TITLE_CHARS_MAX]
    digest = content_digest(title, text)
    return NoteEntry(
        content_digest(scope.kind, scope.key, digest)[:32],
        note,
        title,
        clean_text(note.digest) or digest,
        split_text(text, title, note.format),
        *(clean_text(part) for part in (note.source.place, note.source.session, note.source.call)),
    )


def make_found_note(
    row: Sequence[Any], score: float, origins: Sequence[NoteOrigin], now: float
) -> FoundNote:
    """What is shown of a row of id, text, title, scope and time, and of where it came from."""
    note, text, title, kind, key, created = row
    live = [one for one in origins if one.expires_at is None or one.expires_at > now]
    ends = [one.expires_at for one in live if one.expires_at is not None]
    return FoundNote(
        note,
        text,
        title,
        score,
        Scope(kind, key),
        tuple(Source(one.place, one.session, one.call) for one in live),
        # Text that came from a place of doubt stays doubtful, even when that place is no more.
        frozenset(taint for taint in TAINTS if any(bool(getattr(one, taint)) for one in origins)),
        created,
        max(ends) if len(ends) == len(live) else None,
        live[0].digest,
    )


def limit_per_note(found: Iterable[FoundNote], limit: int) -> list[FoundNote]:
    """The first ones, with no note more often than is of use."""
    kept: list[FoundNote] = []
    seen: Counter[str] = Counter()
    for one in found:
        seen[one.id] += 1
        if seen[one.id] <= FOUND_PER_NOTE:
            kept.append(one)
        if len(kept) >= limit:
            break
    return kept


def content_digest(*parts: str | bytes) -> str:
    """Names content. Each part is hashed with its length, so that no two lists read the same."""
    whole = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(f"{len(data)}:".encode() + data)
    return whole.hexdigest()


def clean_text(text: str) -> str:
    """Text that every store can hold: no half characters, and no zero bytes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
