"""The conformance suite for journals that list and delete their sessions."""

from typing import Protocol

from windlass.core.errors import SessionBusy
from windlass.ports import Journal, SessionCatalog, SessionLeases
from windlass.testing.journals import SESSION, JournalSuite, error_of, on_a_journal, on_two_journals
from windlass.testing.samples import facts_of_every_kind, note_facts


class CatalogJournal(Journal, SessionLeases, SessionCatalog, Protocol):
    """A journal that lists and deletes its sessions."""


class SessionCatalogConformance(JournalSuite):
    """Sessions are found and deleted, but not while they are driven."""

    @on_a_journal
    async def test_sessions_are_found(self, journal: CatalogJournal) -> None:
        facts = facts_of_every_kind()
        await journal.append("ended", facts)
        await journal.append("open", facts[:6])
        await journal.append("waiting", facts[:10])
        states = {one.session: one.state for one in await journal.sessions()}
        assert states == {"ended": "failed", "open": "open", "waiting": "waiting"}
        assert [one.session for one in await journal.sessions()] == ["ended", "waiting", "open"]
        assert [one.session for one in await journal.sessions(limit=1)] == ["ended"]
        assert [one.session for one in await journal.sessions("WAIT")] == ["waiting"]
        unfinished = await journal.sessions(unfinished=True)
        assert [one.session for one in unfinished] == ["waiting", "open"]

    @on_two_journals
    async def test_abandoned_is_what_nobody_drives_or_is_asked_about(
        self, one: CatalogJournal, two: CatalogJournal
    ) -> None:
        facts = facts_of_every_kind()
        await one.append("ended", facts)
        await one.append("waiting", facts[:10])
        await one.append("driven", facts[:6])
        await one.append("left", facts[:5])
        lease = await one.lease("driven")
        for journal in (one, two):
            assert [each.session for each in await journal.list_abandoned()] == ["left"]
        lease.release()
        for journal in (one, two):
            assert [each.session for each in await journal.list_abandoned()] == ["driven", "left"]

    @on_two_journals
    async def test_a_session_that_is_driven_cannot_be_deleted(
        self, one: CatalogJournal, two: CatalogJournal
    ) -> None:
        await one.append(SESSION, note_facts(1, 3))
        lease = await one.lease(SESSION)
        for journal in (one, two):
            assert isinstance(await error_of(journal.delete(SESSION)), SessionBusy)
        assert list(await two.read(SESSION)) == note_facts(1, 3)
        lease.release()
        assert await two.delete(SESSION)
        assert not await one.delete(SESSION)
        assert not await one.is_leased(SESSION)
        assert list(await one.read(SESSION)) == []
