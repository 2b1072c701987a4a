"""Journals: where sessions are stored, and what can be done with a stored session.

A journal is loaded when its name is first used, so a program that keeps sessions in memory does not
import the SQLite or the Postgres driver.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.core.session_summary import SessionPage as SessionPage
    from windlass.core.session_summary import SessionSummary as SessionSummary
    from windlass.journals.archive import (
        export_session as export_session,
        import_session as import_session,
    )
    from windlass.journals.completing import complete_journal as complete_journal
    from windlass.journals.forking import fork as fork
    from windlass.journals.mail_rules import MailLimits as MailLimits
    from windlass.journals.memory import MemoryJournal as MemoryJournal
    from windlass.journals.postgres.journal import PostgresJournal as PostgresJournal
    from windlass.journals.service_keys import ServiceKeys as ServiceKeys
    from windlass.journals.sqlite.journal import SqliteJournal as SqliteJournal
    from windlass.journals.urls import open_journal as open_journal
    from windlass.ports import RecordProblem as RecordProblem

LAZY_MODULES: LazyModules = {
    "windlass.core.session_summary": "SessionPage SessionSummary",
    "windlass.journals.archive": "export_session import_session",
    "windlass.journals.completing": "complete_journal",
    "windlass.journals.forking": "fork",
    "windlass.journals.mail_rules": "MailLimits",
    "windlass.journals.memory": "MemoryJournal",
    "windlass.journals.postgres.journal": "PostgresJournal",
    "windlass.journals.service_keys": "ServiceKeys",
    "windlass.journals.sqlite.journal": "SqliteJournal",
    "windlass.journals.urls": "open_journal",
    "windlass.ports": "RecordProblem",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
