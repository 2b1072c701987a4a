"""The row of a session in a stored journal: where its chain ends, and its summary.

Invariant: the end of the chain is written with every append, and the summary only when the state of
the session changes, or when it is SUMMARY_LAG_MAX records behind. An append then writes a few bytes
and touches no index. Whoever reads a summary that is behind advances it by the records since.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple, Self

from windlass.core.events import Fact
from windlass.core.session_query import PagePlace
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.chain import (
    ChainLink,
    RecordProblem,
    RecordRow,
    chain_hash,
    chain_root,
    check_order,
)
from windlass.journals.codec import FactRecord
from windlass.journals.mail_rules import MailCounters

SUMMARY_LAG_MAX = 64
"""Records that the summary in a row may be behind."""

SUMMARY_COLUMNS = (
    "title",
    "created",
    "updated",
    "runs",
    "steps",
    "outcome",
    "proposed",
    "asked",
    "agent",
    "caller",
    "parent",
    "tokens",
    "usd",
    "reserved_tokens",
    "reserved_usd",
    "waiting",
    "pause",
    "released",
)
"""The fields of a summary that are columns of the same name."""
_ROW_COLUMNS = ("head", "session", "facts", "summarized", *SUMMARY_COLUMNS)
SESSION_COLUMNS = ", ".join(_ROW_COLUMNS)
"""The hash and the number of the last record, the record that the summary includes, the summary."""
CHANGING_COLUMNS = tuple(name for name in _ROW_COLUMNS if name != "session")
"""The columns that an append may change."""
STATE_SQL = """CASE WHEN created < 0 THEN 'new' WHEN outcome IS NOT NULL THEN outcome
    WHEN proposed = 0 AND asked + waiting > 0 THEN 'waiting'
    WHEN pause <> '' AND released THEN 'paused' ELSE 'open' END"""
"""`SessionSummary.state` as a generated column.

A session that has nothing but a prompt in its mailbox is `new`, and in no list. It does not depend
on what every append changes, so that its index is not written each time.
"""
NOT_CREATED = -1.0
"""The `created` of a session that has nothing but mail."""

_summary_values = attrgetter(*SUMMARY_COLUMNS)
_indexed_values = attrgetter(
    "state", "title", "outcome", "runs", "agent", "caller", "parent", "pause", "released"
)


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Facts that are not durable yet, and the future of the caller who waits for them."""

    session: str
    facts: Sequence[Fact]
    records: Sequence[FactRecord]
    done: asyncio.Future[None]

    @property
    def size_bytes(self) -> int:
        blobs = (len(data) for record in self.records for _, data in record.blobs)
        return sum(len(record.body) for record in self.records) + sum(blobs)


class ListedSession(NamedTuple):
    """A session in a list, and its place there."""

    summary: SessionSummary
    place: PagePlace
    """By the time of the last change of state, which is in the index. Activity may be later."""


class SessionEnd(NamedTuple):
    """Where a session ends: what the next append has to follow."""

    last_link: ChainLink
    summary: SessionSummary
    row: SessionSummary | None = None
    """What the row says; None if the session has no row yet."""
    number: int = 0
    """The key of the session's row. Postgres assigns it in the database and leaves this at 0."""
    mail: MailCounters = MailCounters()
    """The messages that facts carry which were appended here."""
    seal: str = ""
    """In a file: the end, signed with the user's key. Empty if it is not signed."""
    is_genuine: bool = True
    """Whether the end that was found in the file was signed. Nothing is signed after one that was
    not, so that a change by others is never covered up."""

    @classmethod
    def of_new_session(cls, session: str, number: int = 0) -> Self:
        """The end of a session that has no records yet."""
        return cls(chain_root(session), SessionSummary(session), None, number)

    @classmethod
    def from_row(cls, row: Sequence[Any], number: int = 0, seal: str = "") -> Self:
        """Read the end of a session from the values of SESSION_COLUMNS."""
        values = dict(zip(_ROW_COLUMNS, row, strict=True))
        link = ChainLink(values.pop("facts"), values.pop("head"))
        for name in ("usd", "reserved_usd"):
            values[name] = None if values[name] is None else Decimal(values[name])
        values["released"] = bool(values["released"])
        summary = SessionSummary(facts=values.pop("summarized"), **values)
        return cls(link, summary, summary, number, seal=seal)

    @classmethod
    def of_mailbox(cls, session: str, number: int = 0) -> Self:
        """The row of a session that has a prompt in its mailbox, and no records yet."""
        summary = SessionSummary(session, created=NOT_CREATED)
        return cls(chain_root(session), summary, None, number)

    @property
    def is_behind(self) -> bool:
        """Whether the summary does not include all records."""
        return self.summary.facts != self.last_link.seq

    def catch_up(self, facts: Iterable[Fact]) -> "SessionEnd":
        """Return the same end with a summary that includes the records that it was behind by."""
        return self._replace(summary=advance_summary(self.summary, facts))

    def as_listed(self) -> "ListedSession":
        """Return the session as it stands in a list, which is sorted by the time in its row."""
        row = self.row or self.summary
        return ListedSession(self.summary, PagePlace.of(row))

    def extend(self, append: PendingAppend) -> tuple["SessionEnd", list[RecordRow]]:
        """Return the end of the session after an append, and the rows of its records.

        Raises SessionBusy if the sequence numbers are taken, and JournalFailed if there is a gap.
        """
        link = self.last_link
        check_order(append.session, link.seq, append.facts)
        rows: list[RecordRow] = []
        for record in append.records:
            link = ChainLink(link.seq + 1, chain_hash(link.hash, record.body))
            rows.append((link.seq, record.body, link.hash))
        summary = advance_summary(self.summary, append.facts)
        mail = self.mail.advance(append.facts)
        return self._replace(last_link=link, summary=summary, mail=mail), rows

    @property
    def needs_whole_row(self) -> bool:
        """Whether the summary must be written too."""
        row = self.row
        return (
            row is None or self.summary.facts - row.facts >= SUMMARY_LAG_MAX or self.changes_state
        )

    @property
    def changes_state(self) -> bool:
        """Whether the session is new, or in another state than its row says."""
        return self.row is None or _indexed_values(self.summary) != _indexed_values(self.row)

    def after_writing(self) -> "SessionEnd":
        """Return the end as it is once its row was written."""
        if self.needs_whole_row:
            return self._replace(row=self.summary, mail=MailCounters())
        return self._replace(mail=MailCounters())

    def to_row(self) -> tuple[Any, ...]:
        """Return the values of SESSION_COLUMNS, with the old summary if it need not be written."""
        is_whole = self.needs_whole_row
        summary = self.summary if is_whole or self.row is None else self.row
        place = (self.last_link.hash, summary.session, self.last_link.seq, summary.facts)
        return (*place, *_summary_values(summary))


def find_row_problems(end: SessionEnd, facts: Sequence[Fact]) -> list[RecordProblem]:
    """Return what the row of a session says that its records do not."""
    row = end.summary
    made = advance_summary(SessionSummary(row.session), facts[: row.facts])
    names = [name for name in SUMMARY_COLUMNS if _comparable(made, name) != _comparable(row, name)]
    if not names or not facts:
        return []
    what = f"the list of sessions says something else than the records: {', '.join(names)}"
    return [RecordProblem(row.facts, what)]


def _comparable(summary: SessionSummary, name: str) -> object:
    value = getattr(summary, name)
    # Postgres texts cannot contain NUL.
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
