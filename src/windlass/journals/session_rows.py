"""The row of a session in a stored journal: where its chain ends, and what its writer said of it.

Invariant: the columns that are in an index change only with the state. The others may change with
every append, so that an append between two states touches no index.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple, Self, cast

from windlass.core.errors import IllegalFact
from windlass.core.events import Fact
from windlass.core.fold.run import fold
from windlass.core.session_summary import SessionState, SessionSummary, row_of
from windlass.journals.codec import (
    ChainLink,
    FactRecord,
    RecordProblem,
    RecordRow,
    chain_hash,
    chain_root,
    check_order,
)
from windlass.journals.mail_rules import MailCounters
from windlass.journals.upgrades import VERSION

COUNTER_COLUMNS = (
    "updated",
    "steps",
    "asked",
    "tokens",
    "usd",
    "reserved_tokens",
    "reserved_usd",
)
"""The fields of a row that each append may change. They are in no index."""
SUMMARY_COLUMNS = (
    "state",
    "changed",
    "title",
    "created",
    "runs",
    "outcome",
    "agent",
    "caller",
    "parent",
    "pause",
    "released",
    "due",
    *COUNTER_COLUMNS,
)
"""The fields of a row that are columns of the same name."""
_ROW_COLUMNS = ("head", "session", "facts", "version", "tags", *SUMMARY_COLUMNS)
SESSION_COLUMNS = ", ".join(_ROW_COLUMNS)
"""The hash and the number of the last record, the version that wrote the row, and the row."""
CHANGING_COLUMNS = tuple(name for name in _ROW_COLUMNS if name != "session")
"""The columns that an append may change."""
MAIL_ONLY = cast("SessionState", "new")
"""The state of a session that has nothing but a prompt in its mailbox. It is in no list."""

_summary_values = attrgetter(*SUMMARY_COLUMNS)
counter_values = attrgetter(*COUNTER_COLUMNS)
"""Return the values of COUNTER_COLUMNS of a row."""


def tag_text(tags: Mapping[str, str]) -> str:
    """Return tags as a text that has each of them on its own line, between two ends."""
    return "".join(f"\n{key}={value}\n" for key, value in sorted(tags.items()))


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Facts that are not durable yet, and the future of the caller who waits for them."""

    session: str
    facts: Sequence[Fact]
    row: SessionSummary
    records: Sequence[FactRecord]
    done: asyncio.Future[None]

    @property
    def size_bytes(self) -> int:
        blobs = (len(data) for record in self.records for _, data in record.blobs)
        return sum(len(record.body) for record in self.records) + sum(blobs)


def extend_link(link: ChainLink, records: Sequence[FactRecord]) -> ChainLink:
    """Return where a chain ends after some records."""
    for record in records:
        link = ChainLink(link.seq + 1, chain_hash(link.hash, record.body))
    return link


class SessionEnd(NamedTuple):
    """Where a session ends: what the next append has to follow."""

    last_link: ChainLink
    summary: SessionSummary
    row: SessionSummary | None = None
    """What the row says; None if the session does not have a row yet."""
    number: int = 0
    """The key of the session's row. Postgres assigns it in the database and leaves this at 0."""
    mail: MailCounters = MailCounters()
    """The messages that facts carry which were appended here."""
    seal: str = ""
    """In a file: the end, signed with the user's key. Empty if it is not signed."""
    is_genuine: bool = True
    """Whether the end that was found in the file was signed. Nothing is signed after one that was
    not, so that a change by others is never covered up."""
    version: int = 0
    """The version of the program that wrote the row."""

    @classmethod
    def of_new_session(cls, session: str, number: int = 0) -> Self:
        """The end of a session without records."""
        return cls(chain_root(session), SessionSummary(session), None, number)

    @classmethod
    def from_row(cls, row: Sequence[Any], number: int = 0, seal: str = "") -> Self:
        """Read the end of a session from the values of SESSION_COLUMNS."""
        values = dict(zip(_ROW_COLUMNS, row, strict=True))
        link = ChainLink(values["facts"], values.pop("head"))
        version = values.pop("version")
        for name in ("usd", "reserved_usd"):
            values[name] = None if values[name] is None else Decimal(values[name])
        values["released"] = bool(values["released"])
        values["tags"] = dict(tag.split("=", 1) for tag in values["tags"].split("\n") if tag)
        summary = SessionSummary(**values)
        return cls(link, summary, summary, number, seal=seal, version=version)

    @classmethod
    def of_mailbox(cls, session: str, number: int = 0) -> Self:
        """The row of a session that has a prompt in its mailbox, and no records yet."""
        return cls(chain_root(session), SessionSummary(session, MAIL_ONLY), None, number)

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
        summary = append.row.follow(self.summary) if self.last_link.seq else append.row
        mail = self.mail.advance(append.facts)
        return self._replace(last_link=link, summary=summary, mail=mail), rows

    def fold_again(self, facts: Sequence[Fact]) -> "SessionEnd":
        """Return the same end with the row that all of its facts add up to, to be written whole.

        A session whose facts cannot be folded keeps the row that it has.
        """
        row = self.summary
        if facts:
            with suppress(IllegalFact):
                row = row_of(fold(row.session, facts)).follow(row)
        return self._replace(summary=row, row=None)

    @property
    def changes_state(self) -> bool:
        """Whether the session is new, or in another state than its row says."""
        return self.row is None or not self.summary.has_state_of(self.row)

    def after_writing(self) -> "SessionEnd":
        """Return the end as it is once its row was written."""
        return self._replace(row=self.summary, mail=MailCounters())

    def to_row(self) -> tuple[Any, ...]:
        """Return the values of SESSION_COLUMNS."""
        summary = self.summary
        tags = tag_text(summary.tags) if summary.tags else ""
        place = (self.last_link.hash, summary.session, self.last_link.seq, VERSION, tags)
        return (*place, *_summary_values(summary))


def find_row_problems(end: SessionEnd, facts: Sequence[Fact]) -> list[RecordProblem]:
    """Return what the row of a session says that its records do not."""
    row = end.summary
    # A row that the version before wrote lacks what is new, until the upgrade is finished.
    if not facts or end.version < VERSION:
        return []
    made = end.fold_again(facts).summary
    columns = (*SUMMARY_COLUMNS, "tags")
    names = [name for name in columns if _comparable(made, name) != _comparable(row, name)]
    if not names:
        return []
    what = f"the list of sessions says something else than the records: {', '.join(names)}"
    return [RecordProblem(row.facts, what)]


def _comparable(summary: SessionSummary, name: str) -> object:
    value = getattr(summary, name)
    # Postgres texts cannot contain NUL.
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
