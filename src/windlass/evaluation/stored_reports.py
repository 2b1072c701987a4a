"""Evaluations in the journal: what is planned, and the last report, for the page and `watch`.

A report is a shared record beside the sessions of its trials. One that is too long for a record is
kept without the reasons of its scores, and then the report file has them.
"""

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError, RecordConflict
from windlass.evaluation.reports import CaseReport, Report
from windlass.journals.record_rules import RECORD_BYTES_MAX
from windlass.ports import Journal, SharedRecord

RECORD_KIND = "evaluation"
OWNER_KIND = "evaluation-owner"
"""Empty records that name the evaluations of each caller, so that a list reads no others."""
WRITE_TRIES = 5


class StoredEvaluation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An evaluation as the journal keeps it."""

    name: str
    trials: int
    """How many are planned."""
    caller: str = ""
    """On whose behalf the trials are run: the owner of their sessions."""
    updated: float = 0.0
    """Seconds since the epoch."""
    report: Report | None = None
    """None while no trial has ended."""


async def store_evaluation(journal: Journal, stored: StoredEvaluation) -> None:
    """Keep an evaluation, in place of what was kept under its name."""
    data = msgspec.json.encode(stored)
    if len(data) > RECORD_BYTES_MAX and stored.report is not None:
        data = msgspec.json.encode(replace(stored, report=_shorten(stored.report)))
    if len(data) > RECORD_BYTES_MAX:
        data = msgspec.json.encode(replace(stored, report=None))
    with suppress(RecordConflict):
        # Conflicts if it is there already.
        await journal.put_record(OWNER_KIND, _owned_name(stored.caller, stored.name), b"{}", 0)
    for _ in range(WRITE_TRIES):
        found = await journal.get_record(RECORD_KIND, stored.name)
        try:
            await journal.put_record(RECORD_KIND, stored.name, data, found.version if found else 0)
        except RecordConflict:
            # Another process has stored its own view of the same trials in the meantime.
            continue
        return


def _shorten(report: Report) -> Report:
    def shorten_case(case: CaseReport) -> CaseReport:
        trials = tuple(
            replace(trial, scores=tuple(replace(score, reason="") for score in trial.scores))
            for trial in case.trials
        )
        return replace(case, trials=trials)

    return replace(report, cases=tuple(shorten_case(case) for case in report.cases))


async def read_evaluation(journal: Journal, name: str) -> StoredEvaluation | None:
    """Return what is kept under a name; None if nothing is. Raises ConfigError if it is broken."""
    record = await journal.get_record(RECORD_KIND, name)
    return _decode(record) if record is not None else None


async def list_evaluations(
    journal: Journal, caller: str | None = None
) -> Sequence[StoredEvaluation]:
    """Return the evaluations of a caller, or all of a journal, the latest first."""
    found: list[StoredEvaluation] = []
    if caller is None:
        after = ""
        while page := await journal.list_records(RECORD_KIND, after):
            found += map(_decode, page)
            after = page[-1].name
    else:
        for name in await _list_owned_names(journal, caller):
            stored = await read_evaluation(journal, name)
            # Another caller may have taken the name since.
            if stored is not None and stored.caller == caller:
                found.append(stored)
    return sorted(found, key=lambda stored: stored.updated, reverse=True)


async def delete_evaluations(journal: Journal, caller: str) -> int:
    """Delete all that is kept of a caller's evaluations, and return how many there were."""
    names = await _list_owned_names(journal, caller)
    for name in names:
        stored = await read_evaluation(journal, name)
        if stored is not None and stored.caller == caller:
            await journal.delete_record(RECORD_KIND, name)
        await journal.delete_record(OWNER_KIND, _owned_name(caller, name))
    return len(names)


def _owned_name(caller: str, name: str) -> str:
    return f"{quote(caller, safe='')}/{name}"


async def _list_owned_names(journal: Journal, caller: str) -> list[str]:
    prefix = after = _owned_name(caller, "")
    names: list[str] = []
    while page := await journal.list_records(OWNER_KIND, after):
        own = [record.name for record in page if record.name.startswith(prefix)]
        names += [name.removeprefix(prefix) for name in own]
        if len(own) < len(page):
            break
        after = own[-1]
    return names


def _decode(record: SharedRecord) -> StoredEvaluation:
    try:
        return msgspec.json.decode(record.data, type=StoredEvaluation)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the evaluation {record.name!r} cannot be read: {error}") from None
