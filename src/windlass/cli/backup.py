"""`windlass backup` and `windlass restore`: save a journal while it is in use, and put it back."""

import asyncio
from functools import partial
from pathlib import Path

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.core.session_summary import SessionSummary
from windlass.journals.saved_journal import SavedJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.sqlite.saving import restore_file
from windlass.journals.wording import parse_journal_name
from windlass.project.journals import ManagedJournal, SavableJournal

LISTED_MAX = 1_000_000_000


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@journal_option
def backup(file: Path, place: str) -> None:
    """Save the journal to FILE while others use it, and check every record of it.

    FILE appears only once it is whole. It holds all that the journal does, also the hashes of
    tokens, and no key.
    """
    saved = run_on_journal(place, partial(_save, file.absolute()))
    click.echo(f"{file}: {_describe(saved)}, all of them sound")


async def _save(file: Path, journal: ManagedJournal) -> SavedJournal:
    return await _require_savable(journal).save(file)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@journal_option
@click.option(
    "--replace", is_flag=True, help="Replace the existing file; it is kept next to the new one."
)
@click.option("--accept", is_flag=True, help="Accept a backup from another machine or user.")
def restore(file: Path, place: str, replace: bool, accept: bool) -> None:
    """Put a backup in place of a journal, and check every record of it.

    A journal in a file must not be in use, and a Postgres database must be empty. What was erased
    in the journal that is replaced is erased in the restored one too.
    """
    parsed = parse_journal_name(place)
    if parsed.kind == "memory":
        raise ConfigError("a journal in memory cannot be restored: name a file or a database")
    if parsed.kind == "sqlite":
        target = Path(parsed.location)
        saved = asyncio.run(_restore_file(file, target, replace=replace, accept=accept))
    else:
        saved = run_on_journal(place, lambda journal: _require_savable(journal).load(file))
    click.echo(f"{parsed.shown}: {_describe(saved)} restored")


async def _restore_file(file: Path, target: Path, *, replace: bool, accept: bool) -> SavedJournal:
    before = set(target.parent.glob(f"{target.name}.replaced-*"))
    saved = await asyncio.to_thread(restore_file, file, target, replace=replace, accept=accept)
    kept = set(target.parent.glob(f"{target.name}.replaced-*")) - before
    with SqliteJournal(target) as journal:
        await journal.accept()
        for path in kept:
            with SqliteJournal(path) as replaced:
                listed: list[SessionSummary] = list(await journal.sessions(limit=LISTED_MAX))
                for summary in listed:
                    first = await journal.read_first_hash(summary.session)
                    tombstone = await replaced.find_tombstone(summary.session, first)
                    if tombstone is not None and tombstone.erased:
                        await journal.delete(summary.session, erase=True)
                await journal.scrub()
    return saved


def _require_savable(journal: ManagedJournal) -> SavableJournal:
    if not isinstance(journal, SavableJournal):
        raise ConfigError("a journal in memory cannot be saved: name a file or a database")
    return journal


def _describe(saved: SavedJournal) -> str:
    return f"{format_count(saved.sessions, 'session')}, {format_count(saved.records, 'record')}"
