"""Notes: what is known, where it came from, whose it is and how far it can be trusted.

Invariant: a note is found only in its scope, and it says where it came from. The same text in the
same scope is stored once, with all its sources; it is deleted with the last of them.
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
"""Chunks of one note in an answer: a long document must not fill it alone."""

CANDIDATES_PER_FOUND = 6
"""Candidates for each note that is asked for: some of them are chunks of the same note."""

LabelUpdate = Literal["keep", "replace"]
"""Storing a source again keeps its labels; only reading its place again replaces them."""
ScopeKind = Literal["user", "project", "session"]
Taint = Literal["untrusted", "private"]
"""The labels that a note can have. The third one, `external`, is only for tools."""
TAINTS: tuple[Taint, ...] = ("untrusted", "private")


class KnowledgeFailed(ForOperator):
    """The store could not read or write. A run continues without notes."""


class Scope(msgspec.Struct, frozen=True, order=True):
    """Whose a note is: `Scope("user", "ann")` shares nothing with `Scope("user", "bob")`.

    Raises ConfigError for an unknown kind or an empty key.
    """

    kind: ScopeKind
    key: str

    def __post_init__(self) -> None:
        if self.kind not in ("user", "project", "session"):
            raise ConfigError(f"scope {self.kind!r}: it must be 'user', 'project' or 'session'")
        # Everyone who forgets to set a key would share the scope with an empty one.
        if not self.key.strip() or clean_text(self.key) != self.key:
            raise ConfigError(
                f"scope {self.kind!r}: {self.key!r} is not a valid key; say whose notes these are"
            )

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Source(msgspec.Struct, frozen=True):
    """Where a note came from: a place (a file, a URL), or a call in a session.

    Raises ConfigError if it names neither.
    """

    place: str = ""
    session: str = ""
    call: str = ""

    def __post_init__(self) -> None:
        if not (self.place or self.session):
            raise ConfigError("a source needs a place or a session")

    @override
    def __str__(self) -> str:
        if self.place:
            return self.place
        call = f", call {self.call}" if self.call else ""
        return f"session {self.session}{call}"


class Note(msgspec.Struct, frozen=True):
    """A text to store."""

    text: str
    scope: Scope
    source: Source
    title: str = ""
    labels: frozenset[Taint] = frozenset()
    expires_at: float | None = None
    """Seconds since the epoch; from then on it is not found."""
    format: TextFormat = "text"
    digest: str = ""
    """Of what the note was made from, to see whether that has changed. By default of its text."""


class FoundNote(msgspec.Struct, frozen=True):
    """A chunk of a note that answers a query."""

    id: str
    """The id of the note, for `forget`."""
    text: str
    title: str
    score: float
    """Higher is better. Scores of two queries cannot be compared."""
    scope: Scope
    sources: tuple[Source, ...]
    labels: frozenset[Taint]
    created: float
    expires_at: float | None
    digest: str


class NoteEntry(msgspec.Struct, frozen=True):
    """A note ready to be stored: split into chunks, with an id made of its text and scope."""

    id: str
    note: Note
    title: str
    digest: str
    chunks: Sequence[TextChunk]
    place: str
    session: str
    call: str


class RecallQuery(NamedTuple):
    """A search: the words and the vector, and which notes it may find."""

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
    """A store of notes. If it fails, every method raises KnowledgeFailed and nothing else."""

    async def remember(self, *notes: Note) -> list[str]:
        """Store the notes and return their ids, once they are durable. Repeating it is harmless."""
        ...

    async def replace_notes(self, *notes: Note) -> list[str]:
        """Store the notes, and forget what else their places held before: one note for a place."""
        ...

    async def recall(
        self,
        query: str,
        scopes: Sequence[Scope],
        *,
        limit: int = 8,
        taints: Collection[Taint] = TAINTS,
    ) -> list[FoundNote]:
        """The notes that answer the query in these scopes, best first.

        Any text is a query; one without words finds nothing. Notes with a label that is not in
        `taints` are left out. `limit`: chunks to return at most.
        """
        ...

    async def list_notes(
        self,
        scopes: Sequence[Scope],
        *,
        note: str = "",
        limit: int = 100,
        taints: Collection[Taint] = TAINTS,
    ) -> list[FoundNote]:
        """The notes of these scopes, newest first, each with its first piece of text.

        `note`: only the notes whose ids begin so.
        """
        ...

    async def correct(
        self,
        note: str,
        text: str,
        source: Source,
        *,
        title: str = "",
        labels: Collection[Taint] = (),
    ) -> str | None:
        """Put another text in place of a note, and return its new id; None if it is not there.

        It keeps its scope, its expiry, its labels, and its title unless another one is given; to
        the labels those of the correction are added. Its source is that of the correction alone.
        """
        ...

    async def forget(self, note: str) -> bool:
        """Delete a note with all its sources; whether there was one."""
        ...

    async def forget_places(self, scope: Scope, places: Sequence[str]) -> int:
        """Delete the notes that only these places hold; how many."""
        ...

    async def list_places(self, scope: Scope, under: str = "") -> dict[str, str]:
        """The places that start with `under`, and the digest of what each held."""
        ...

    async def delete_expired(self, now: float | None = None) -> int:
        """Delete the notes that have expired; how many. They are not found even before that."""
        ...


def make_entry(note: Note) -> NoteEntry:
    """A note ready to be stored."""
    text = clean_text(note.text)
    scope = note.scope
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
    """A found note from a row (id, text, title, kind, key, created) and its sources."""
    note_id, text, title, kind, key, created = row
    live = [origin for origin in origins if origin.expires_at is None or origin.expires_at > now]
    ends = [origin.expires_at for origin in live if origin.expires_at is not None]
    # Labels of expired sources stay: the text is the same, and so is the doubt about it.
    taints: frozenset[Taint] = frozenset(
        taint for taint in TAINTS if any(getattr(origin, taint) for origin in origins)
    )
    return FoundNote(
        note_id,
        text,
        title,
        score,
        Scope(kind, key),
        tuple(Source(origin.place, origin.session, origin.call) for origin in live),
        taints,
        created,
        max(ends) if len(ends) == len(live) else None,
        live[0].digest,
    )


def limit_per_note(found: Iterable[FoundNote], limit: int) -> list[FoundNote]:
    """The first `limit` chunks, with at most FOUND_PER_NOTE of each note."""
    kept: list[FoundNote] = []
    seen: Counter[str] = Counter()
    for note in found:
        seen[note.id] += 1
        if seen[note.id] <= FOUND_PER_NOTE:
            kept.append(note)
        if len(kept) >= limit:
            break
    return kept


def content_digest(*parts: str | bytes) -> str:
    """A SHA-256 of the parts. Each is hashed with its length: ("ab", "c") is not ("a", "bc")."""
    whole = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(f"{len(data)}:".encode() + data)
    return whole.hexdigest()


def clean_text(text: str) -> str:
    """Text that every database can store: without lone surrogates and zero bytes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
