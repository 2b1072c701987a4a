"""Journals: where sessions are stored, and what can be done with a stored session.

A journal is loaded when its name is first used, so a program that keeps sessions in memory does not
import the SQLite or the Postgres driver.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.core.session_query import SessionPage
    from windlass.core.session_summary import SessionSummary
    from windlass.journals.archive import export_session, import_session
    from windlass.journals.completing import complete_journal
    from windlass.journals.forking import fork
    from windlass.journals.mail_rules import MailLimits
    from windlass.journals.memory import MemoryJournal
    from windlass.journals.postgres.journal import PostgresJournal
    from windlass.journals.service_keys import ServiceKeys
    from windlass.journals.sqlite.journal import SqliteJournal
    from windlass.journals.urls import open_journal
    from windlass.ports import RecordProblem

__all__ = [
    "MailLimits",
    "MemoryJournal",
    "PostgresJournal",
    "RecordProblem",
    "ServiceKeys",
    "SessionPage",
    "SessionSummary",
    "SqliteJournal",
    "complete_journal",
    "export_session",
    "fork",
    "import_session",
    "open_journal",
]

LAZY_MODULES: LazyModules = {
    "MailLimits": "windlass.journals.mail_rules",
    "MemoryJournal": "windlass.journals.memory",
    "PostgresJournal": "windlass.journals.postgres.journal",
    "RecordProblem": "windlass.ports",
    "ServiceKeys": "windlass.journals.service_keys",
    "SessionPage": "windlass.core.session_query",
    "SessionSummary": "windlass.core.session_summary",
    "SqliteJournal": "windlass.journals.sqlite.journal",
    "complete_journal": "windlass.journals.completing",
    "export_session": "windlass.journals.archive",
    "fork": "windlass.journals.forking",
    "import_session": "windlass.journals.archive",
    "open_journal": "windlass.journals.urls",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
