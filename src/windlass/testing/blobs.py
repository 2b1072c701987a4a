"""What a journal must do that keeps things beside its records."""

import os
from pathlib import Path
from typing import Protocol

from windlass.core.errors import JournalFailed
from windlass.ports import Blobs, Journal
from windlass.testing.journals import SESSION, Stage, on_a_journal, on_two_journals, refusal
from windlass.testing.samples import notes

ENOUGH = 16
"""Characters of a name that tell it from all others."""


class BlobsJournal(Journal, Blobs, Protocol):
    """Keeps things beside its records."""


class BlobsConformance(Stage):
    """What a session keeps is there for as long as the session, and for nobody else."""

    @on_a_journal
    async def test_it_is_one_that_keeps_things(self, journal: BlobsJournal) -> None:
        assert isinstance(journal, Blobs)

    @on_two_journals
    async def test_what_was_kept_is_fetched_by_name(
        self, one: BlobsJournal, two: BlobsJournal
    ) -> None:
        """J10: by its hash, so that the same data has the same name everywhere."""
        await one.append(SESSION, notes(1, 1))
        for data in (b"", b"some text", os.urandom(3_000_000)):
            name = await one.keep(SESSION, data)
            assert await two.keep(SESSION, data) == name
            for journal in (one, two):
                assert await journal.fetch(SESSION, name) == data
                assert await journal.fetch(SESSION, name[:ENOUGH]) == data

    @on_a_journal
    async def test_a_name_that_is_none_finds_nothing(self, journal: BlobsJournal) -> None:
        await journal.append(SESSION, notes(1, 1))
        name = await journal.keep(SESSION, b"kept")
        short, strange = name[: ENOUGH - 1], ("0" * ENOUGH, "%" * ENOUGH, "\ud800" * ENOUGH)
        for wrong in ("", short, name + "0", *strange):
            assert await journal.fetch(SESSION, wrong) is None
        assert await journal.fetch("unknown", name) is None

    @on_a_journal
    async def test_a_session_sees_only_its_own(self, journal: BlobsJournal) -> None:
        for session in (SESSION, "another"):
            await journal.append(session, notes(1, 1))
        name = await journal.keep(SESSION, b"private")
        assert await journal.fetch("another", name) is None
        assert await journal.keep("another", b"private") == name
        assert await journal.fetch("another", name) == b"private"

    @on_a_journal
    async def test_what_belongs_to_no_session_is_refused(self, journal: BlobsJournal) -> None:
        """Nobody would ever delete it."""
        assert isinstance(await refusal(journal.keep("unknown", b"lost")), JournalFailed)
        assert list(await journal.read("unknown")) == []

    def test_what_is_kept_outlives_the_journal(self, tmp_path: Path) -> None:
        if not self.durable:
            return
        names = list[str]()

        async def keep(journal: BlobsJournal) -> None:
            await journal.append(SESSION, notes(1, 1))
            names.append(await journal.keep(SESSION, b"for later"))

        async def fetch(journal: BlobsJournal) -> None:
            assert await journal.fetch(SESSION, names[0]) == b"for later"

        self.play(tmp_path, keep)
        self.play(tmp_path, fetch)
