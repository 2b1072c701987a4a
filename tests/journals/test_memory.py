"""Sessions in memory."""

import asyncio
from pathlib import Path

from typing_extensions import override

from windlass.core.errors import SessionBusy
from windlass.core.session_summary import UNFINISHED_STATES
from windlass.journals.memory import MemoryJournal
from windlass.ports import Journal
from windlass.testing import (
    AppendSignalsConformance,
    BlobStoreConformance,
    JournalConformance,
    LiveChannelConformance,
    MailboxConformance,
    SessionCatalogConformance,
    SessionLeasesConformance,
    SharedBudgetsConformance,
    SharedQuotaConformance,
    SharedRecordsConformance,
    WorkConformance,
)
from windlass.testing.journals import append_facts, row_for
from windlass.testing.samples import facts_of_every_kind, note_facts


class TestMemoryJournal(
    JournalConformance,
    SessionLeasesConformance,
    AppendSignalsConformance,
    BlobStoreConformance,
    SharedBudgetsConformance,
    SharedQuotaConformance,
    SharedRecordsConformance,
    WorkConformance,
    SessionCatalogConformance,
    LiveChannelConformance,
    MailboxConformance,
):
    """J5: one conformance suite for all stores."""

    durable = False

    @override
    def open(self, folder: Path) -> Journal:
        return MemoryJournal(now=self.now, mail_limits=self.mail_limits)


def test_an_append_is_done_at_once() -> None:
    """The loop goes on without giving way to others."""

    async def scenario() -> None:
        journal = MemoryJournal()
        row = row_for("s", note_facts(1, 2))
        assert journal.append("s", note_facts(1, 2), row).done()
        taken = journal.append("s", note_facts(2, 2), row)
        assert taken.done()
        assert isinstance(taken.exception(), SessionBusy)

    asyncio.run(scenario())


def test_sessions_are_listed_found_and_deleted() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        await append_facts(journal, "first", facts_of_every_kind())
        await append_facts(journal, "second", facts_of_every_kind()[:2])
        assert {one.session for one in await journal.sessions()} == {"first", "second"}
        assert [one.state for one in await journal.sessions(state=UNFINISHED_STATES)] == ["open"]
        assert [one.session for one in await journal.sessions("FIRST")] == ["first"]
        assert len(await journal.sessions("look, then", limit=1)) == 1
        assert await journal.delete("first")
        assert not await journal.delete("first")
        assert await journal.read("first") == ()

    asyncio.run(scenario())
