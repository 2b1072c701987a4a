"""The conformance suite for journals that store blobs beside their records."""

import os
from pathlib import Path

from windlass.core.errors import JournalFailed
from windlass.ports import Journal
from windlass.testing.journals import (
    SESSION,
    JournalSuite,
    append_facts,
    error_of,
    on_a_journal,
    on_two_journals,
)
from windlass.testing.samples import note_facts

SHORT_NAME_CHARS = 16
"""A prefix of this many characters identifies a blob."""


class BlobStoreConformance(JournalSuite):
    """A blob lives as long as its session, and only that session can read it."""

    @on_two_journals
    async def test_what_was_kept_is_fetched_by_name(self, one: Journal, two: Journal) -> None:
        """By its hash, so that the same data has the same name everywhere."""
        await append_facts(one, SESSION, note_facts(1, 1))
        for data in (b"", b"some text", os.urandom(3_000_000)):
            name = await one.put_blob(SESSION, data)
            assert await two.put_blob(SESSION, data) == name
            for journal in (one, two):
                assert await journal.get_blob(SESSION, name) == data
                assert await journal.get_blob(SESSION, name[:SHORT_NAME_CHARS]) == data

    @on_a_journal
    async def test_a_name_that_is_none_finds_nothing(self, journal: Journal) -> None:
        await append_facts(journal, SESSION, note_facts(1, 1))
        name = await journal.put_blob(SESSION, b"kept")
        too_short = name[: SHORT_NAME_CHARS - 1]
        unknown = [char * SHORT_NAME_CHARS for char in ("0", "%", "\ud800")]
        for wrong in ("", too_short, name + "0", *unknown):
            assert await journal.get_blob(SESSION, wrong) is None
        assert await journal.get_blob("unknown", name) is None

    @on_a_journal
    async def test_a_session_sees_only_its_own(self, journal: Journal) -> None:
        for session in (SESSION, "another"):
            await append_facts(journal, session, note_facts(1, 1))
        name = await journal.put_blob(SESSION, b"private")
        assert await journal.get_blob("another", name) is None
        assert await journal.put_blob("another", b"private") == name
        assert await journal.get_blob("another", name) == b"private"

    @on_a_journal
    async def test_what_belongs_to_no_session_is_refused(self, journal: Journal) -> None:
        """A blob without a session would never be deleted."""
        assert isinstance(await error_of(journal.put_blob("unknown", b"lost")), JournalFailed)
        assert list(await journal.read("unknown")) == []

    def test_what_is_kept_outlives_the_journal(self, tmp_path: Path) -> None:
        if not self.durable:
            return
        names = list[str]()

        async def keep(journal: Journal) -> None:
            await append_facts(journal, SESSION, note_facts(1, 1))
            names.append(await journal.put_blob(SESSION, b"for later"))

        async def fetch(journal: Journal) -> None:
            assert await journal.get_blob(SESSION, names[0]) == b"for later"

        self.run_scenario(tmp_path, keep)
        self.run_scenario(tmp_path, fetch)
