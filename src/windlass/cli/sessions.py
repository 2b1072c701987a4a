"""`windlass sessions`: what a journal holds, why it is so, and the ways in and out of it."""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from windlass.cli.session_table import (
    journal_option,
    parse_age_s,
    printable_text,
    resolve_journal_path,
    run_on_journal,
    show_session_list,
)
from windlass.cli.transcript import format_view, show_transcript
from windlass.core.audit.explain import explain as explained
from windlass.core.audit.replay import replay as replayed
from windlass.core.errors import ConfigError
from windlass.core.events import Fact
from windlass.core.fold.run import fold
from windlass.core.session_summary import SessionSummary
from windlass.journals.archive import export_session, import_session
from windlass.journals.forking import fork as forked
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.launches import find_session

LISTED_MAX = 1_000_000_000
UNSOUND_CODE = 1
"""The exit code for a journal that is not as it should be."""


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, explain, check, copy and delete sessions.

    SESSION is a session's name, or a part of it that no other one has.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_, path=resolve_journal_path())


@sessions.command("list")
@journal_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--unfinished", is_flag=True, help="Only those whose last run has not ended.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_(path: Path, limit: int, unfinished: bool, as_json: bool) -> None:
    """List the sessions, the latest first."""
    show_session_list(_find_sessions(path, None, limit, unfinished=unfinished), as_json=as_json)


@sessions.command()
@click.argument("query")
@journal_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def search(query: str, path: Path, limit: int, as_json: bool) -> None:
    """List the sessions whose name or first prompt holds QUERY."""
    show_session_list(_find_sessions(path, query, limit), as_json=as_json)


def _find_sessions(
    path: Path, query: str | None, limit: int, *, unfinished: bool = False
) -> list[SessionSummary]:
    """A journal that nobody has written yet has no sessions."""
    if not path.exists():
        return []
    return run_on_journal(
        path, lambda journal: journal.sessions(query, limit=limit, unfinished=unfinished)
    )


@sessions.command()
@click.argument("session")
@journal_option
@click.option("--view", "as_view", is_flag=True, help="What the model would be shown now.")
def show(session: str, path: Path, as_view: bool) -> None:
    """Show a session as it looked when it ran."""
    name, facts = run_on_journal(path, partial(_read_session, session))
    state = fold(name, facts)
    if as_view:
        for line in format_view(state):
            click.echo(line)
    else:
        show_transcript(state, facts)


@sessions.command(short_help="Tell why a session did what it did.")
@click.argument("session")
@journal_option
def explain(session: str, path: Path) -> None:
    """Tell in words why a session did what it did, record by record."""
    for line in explained(*run_on_journal(path, partial(_read_session, session))):
        click.echo(line)


async def _read_session(given: str, journal: SqliteJournal) -> tuple[str, Sequence[Fact]]:
    name = (await find_session(journal, given)).session
    return name, await journal.read(name)


@sessions.command(short_help="Find records that were changed, moved or taken out.")
@click.argument("session", required=False)
@journal_option
def verify(session: str | None, path: Path) -> None:
    """Check that no record was changed, moved or taken out: of SESSION, or of the whole file.

    The exit code is 1 if something is wrong.
    """
    checked, problems = run_on_journal(path, partial(_verify_sessions, session))
    for problem in problems:
        click.echo(printable_text(problem), err=True)
    if problems:
        sys.exit(UNSOUND_CODE)
    click.echo(f"{_count_noun(checked, 'session')}: every record is where and as it was written")


async def _verify_sessions(given: str | None, journal: SqliteJournal) -> tuple[int, list[str]]:
    listed = (
        await journal.sessions(limit=LISTED_MAX)
        if given is None
        else [await find_session(journal, given)]
    )
    problems = await journal.check() if given is None else []
    for one in listed:
        found = await journal.verify(one.session)
        problems += [f"{one.session}: {problem}" for problem in found]
    return len(listed), problems


@sessions.command(short_help="Run a session again, with no model and no tools.")
@click.argument("session")
@journal_option
def replay(session: str, path: Path) -> None:
    """Run a session again from its journal, with no model and no tools.

    The exit code is 1 if this version would have done something else; the first difference is told.
    A session that other rules made is compared as far as it can be, and that is told.
    """
    name, facts = run_on_journal(path, partial(_read_session, session))
    again = replayed(name, facts)
    if again.difference is not None:
        click.echo(f"{name}: {printable_text(str(again.difference))}", err=True)
        sys.exit(UNSOUND_CODE)
    if again.other_rules is not None:
        click.echo(f"{name}: {again.other_rules}")
        return
    runs = again.state.run.number if again.state.run else 0
    steps = _count_noun(again.state.steps, "step")
    told = f"{_count_noun(len(facts), 'record')}, {_count_noun(runs, 'run')}, {steps}"
    click.echo(f"{name}: {told}: this version does the same")


@sessions.command(short_help="Begin a new session at a record of another one.")
@click.argument("session")
@journal_option
@click.option("--at", type=click.IntRange(1), help="The last record to take over; else all.")
@click.option("--into", metavar="NAME", help="The new session; else it is named after the old one.")
def fork(session: str, path: Path, at: int | None, into: str | None) -> None:
    """Begin a new session with the first records of SESSION, and print its name.

    The numbers of the records are those of `windlass sessions explain`.
    """

    async def fork_session(journal: SqliteJournal) -> str:
        one = await find_session(journal, session)
        return await forked(journal, one.session, at or one.facts, into)

    click.echo(run_on_journal(path, fork_session))


@sessions.command(short_help="Write a session as lines of JSON.")
@click.argument("session")
@journal_option
@click.option("-o", "--output", default="-", metavar="FILE", help="Where to; else to stdout.")
def export(session: str, path: Path, output: str) -> None:
    """Write a session as lines of JSON, with its attachments and its hashes."""

    async def write_session(journal: SqliteJournal) -> int:
        name = (await find_session(journal, session)).session
        with click.open_file(output, "wb", atomic=output != "-") as file:
            return await export_session(journal, name, file.write)

    records = run_on_journal(path, write_session)
    if output != "-":
        click.echo(f"{output}: {_count_noun(records, 'record')}")


@sessions.command("import", short_help="Take in a session that was exported.")
@click.argument("file")
@journal_option
@click.option("--as", "into", metavar="NAME", help="Under another name than the one in the file.")
def import_(file: str, path: Path, into: str | None) -> None:
    """Take in a session that was exported to FILE (- is stdin), and print its name.

    Nothing is written unless all of the file is as it was exported.
    """

    async def read_archive(journal: SqliteJournal) -> str:
        # It is read twice: once to check all of it, and once to write it.
        with click.open_file(file, "rb") as given, tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(given, copy)
            return await import_session(journal, copy, into)

    click.echo(run_on_journal(path, read_archive, create=True))


@sessions.command(short_help="Delete old sessions that ended.")
@journal_option
@click.option("--older-than", "age", required=True, metavar="AGE", help="Such as 12h, 30d or 4w.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(path: Path, age: str, yes: bool) -> None:
    """Delete the sessions that ended, and that nobody touched for so long."""
    before = time.time() - parse_age_s(age)
    listed = run_on_journal(path, lambda journal: journal.sessions(limit=LISTED_MAX))
    old = sum(one.updated < before and one.outcome is not None for one in listed)
    if old and not yes:
        click.confirm(
            f"Delete {_count_noun(old, 'session')} of {len(listed)}?", abort=True, err=True
        )
    gone = run_on_journal(path, lambda journal: journal.prune(before)) if old else 0
    click.echo(f"{_count_noun(gone, 'session')} deleted")


@sessions.command(short_help="Delete sessions.")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@journal_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(names: tuple[str, ...], path: Path, yes: bool) -> None:
    """Delete sessions, with the attachments that no other one uses."""

    async def find_names(journal: SqliteJournal) -> list[str]:
        return [(await find_session(journal, name)).session for name in names]

    async def delete_sessions(journal: SqliteJournal) -> None:
        for one in found:
            if not await journal.delete(one):
                raise ConfigError(f"session {one} is gone already")

    found = list(dict.fromkeys(run_on_journal(path, find_names)))
    if not yes:
        click.confirm(f"Delete {', '.join(found)}?", abort=True, err=True)
    run_on_journal(path, delete_sessions)
    click.echo(f"{_count_noun(len(found), 'session')} deleted")


def _count_noun(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
