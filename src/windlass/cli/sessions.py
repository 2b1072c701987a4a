"""`windlass sessions`: what a journal holds, why a session went as it did, export and import."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

import click

from windlass.agent.following import follow_session
from windlass.agent.prompt_queue import count_queued
from windlass.cli.journal_option import journal_option, run_on_journal, show_unsigned
from windlass.cli.options import read_duration
from windlass.cli.pruning import delete, prune
from windlass.cli.renderer import EventRenderer
from windlass.cli.screen import Screen
from windlass.cli.session_table import show_session_page
from windlass.cli.transcript import format_view, show_transcript
from windlass.core.audit.explain import explain as explain_facts
from windlass.core.audit.replay import replay as replay_facts
from windlass.core.errors import JournalCorrupt
from windlass.core.events import Event, Fact, RunEnded, RunSuspended
from windlass.core.fold.run import fold
from windlass.core.phrases import format_count
from windlass.core.result import open_questions
from windlass.core.secrets.mask import Mask
from windlass.core.session_summary import (
    ENDED_STATES,
    UNFINISHED_STATES,
    SessionPage,
    SessionState,
    read_tag_pairs,
)
from windlass.core.text_clip import printable_chars
from windlass.journals.archive import export_session, import_session
from windlass.journals.forking import fork as fork_session
from windlass.ports import Tombstone
from windlass.project.journals import (
    AnchoredJournal,
    ManagedJournal,
    journal_exists,
    journal_name,
    open_journal,
)
from windlass.project.session_names import find_session

T = TypeVar("T")
LISTED_MAX = 1_000_000_000
STATES = (*UNFINISHED_STATES, *ENDED_STATES)
UNSOUND_CODE = 1
"""The exit code for a journal that is damaged, or that replays differently."""


def _page_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="As JSON."),
        click.option("--cursor", help="The cursor that the previous page printed."),
        click.option("--limit", type=click.IntRange(1), default=50, show_default=True),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, watch, explain, check, copy and delete sessions.

    SESSION is the name of a session, or a part of it that no other name contains.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_, place=journal_name(), states=())


@sessions.command("list")
@journal_option
@_page_options
@click.option("--unfinished", is_flag=True, help="Only sessions whose last run has not ended.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), metavar="STATE")
@click.option("--agent", metavar="NAME", help="Only sessions whose last run had this agent.")
@click.option("--caller", metavar="NAME", help="Only sessions whose last run had this caller.")
@click.option("--since", metavar="AGE", help="Only sessions used in the last AGE, such as 2h.")
@click.option("--until", metavar="AGE", help="Only sessions last used before AGE, such as 30d.")
@click.option("--parent", metavar="SESSION", help="Only sessions of this session's sub-agents.")
@click.option(
    "--tag",
    "tags",
    metavar="KEY=VALUE",
    multiple=True,
    help="Only sessions whose last run has this tag; may be repeated.",
)
def list_(  # noqa: PLR0913, PLR0917 - one parameter per option
    place: str,
    limit: int,
    cursor: str | None,
    as_json: bool,
    unfinished: bool,
    states: tuple[SessionState, ...],
    agent: str | None,
    caller: str | None,
    since: str | None,
    until: str | None,
    parent: str | None,
    tags: tuple[str, ...],
) -> None:
    """List the sessions, the latest first.

    --state is open, waiting, paused or the outcome of the last run, and may be repeated.
    """
    wanted = (*states, *(UNFINISHED_STATES if unfinished else ()))
    _show_found(
        place,
        lambda journal: journal.sessions(
            state=wanted or None,
            agent=agent,
            caller=caller,
            since=_time_before("--since", since),
            until=_time_before("--until", until),
            parent=parent,
            tags=read_tag_pairs(tags),
            limit=limit,
            cursor=cursor,
        ),
        as_json=as_json,
    )


@sessions.command()
@click.argument("query")
@journal_option
@_page_options
def search(query: str, place: str, limit: int, cursor: str | None, as_json: bool) -> None:
    """List the sessions whose name or first prompt contains QUERY."""
    _show_found(
        place, lambda journal: journal.sessions(query, limit=limit, cursor=cursor), as_json=as_json
    )


def _show_found(
    place: str,
    find: Callable[[ManagedJournal], Coroutine[Any, Any, SessionPage]],
    *,
    as_json: bool,
) -> None:
    """Show a page of the sessions of a journal; a file that does not exist yet has none."""

    async def find_with_queues(journal: ManagedJournal) -> tuple[SessionPage, dict[str, int]]:
        page = await find(journal)
        return page, await count_queued(journal, [summary.session for summary in page])

    page = SessionPage()
    queued: dict[str, int] = {}
    if journal_exists(place):
        page, queued = run_on_journal(place, find_with_queues)
    show_session_page(page, queued, as_json=as_json)


def _time_before(option: str, age: str | None) -> float | None:
    """Return the time that an age ago was, in seconds since the epoch. Raises ConfigError."""
    return None if age is None else time.time() - read_duration(option, age)


@sessions.command()
@click.argument("session")
@journal_option
@click.option("--view", "as_view", is_flag=True, help="Show what would be sent to the model now.")
def show(session: str, place: str, as_view: bool) -> None:
    """Show a session as it looked while it ran."""
    name, facts = run_on_journal(place, partial(_read_session, session))
    state = fold(name, facts)
    if as_view:
        for line in format_view(state):
            click.echo(line)
    else:
        show_transcript(state, facts)


@sessions.command(short_help="Show a session while it runs, in whichever process.")
@click.argument("session")
@journal_option
@click.option("--after", type=click.IntRange(0), default=0, help="Only records after this one.")
def watch(session: str, place: str, after: int) -> None:
    """Show a session, and then what happens in it: text as it streams, calls as they end.

    Another process may drive it or, with a Postgres journal, another machine. It ends when the run
    ends, when the run waits for a person, and when no process drives it.
    """
    run_on_journal(place, partial(_watch_session, session, after))


async def _watch_session(given: str, after: int, journal: ManagedJournal) -> None:
    name = (await find_session(journal, given)).session
    screen = Screen()
    renderer = EventRenderer(screen)
    last: Event | None = None
    async with aclosing(follow_session(journal, name, after, Mask())) as events:
        async for event in events:
            renderer.show_event(event)
            last = event
    if not isinstance(last, RunEnded | RunSuspended):
        state = fold(name, await journal.read(name))
        if state.is_active and open_questions(state):
            renderer.show_suspension()
        elif state.is_active:
            screen.write_line(f"Nobody drives this run. To go on with it: windlass resume {name}")
    screen.end_line()


@sessions.command(short_help="Explain why a session went as it did.")
@click.argument("session")
@journal_option
def explain(session: str, place: str) -> None:
    """Explain in words why a session went as it did, record by record."""
    for line in explain_facts(*run_on_journal(place, partial(_read_session, session))):
        click.echo(line)


async def _read_session(given: str, journal: ManagedJournal) -> tuple[str, Sequence[Fact]]:
    name = (await find_session(journal, given)).session
    return name, await journal.read(name)


@sessions.command(short_help="Find records that were changed, moved or removed.")
@click.argument("session", required=False)
@journal_option
@click.option(
    "--accept", is_flag=True, help="Accept the journal as it is, because you moved or restored it."
)
def verify(session: str | None, place: str, accept: bool) -> None:
    """Check that no record of SESSION, or of the whole journal, was changed, moved or removed.

    In a file it also finds answers that were not signed with your key, and a journal that is older
    than it was. In Postgres, with keys, it also finds answers and records that no service signed.
    The exit code is 1 if something was found.
    """
    if accept:
        run_on_journal(place, _accept_journal)
    if session is not None:
        tombstone = run_on_journal(place, partial(_find_deleted, session))
        if tombstone is not None:
            click.echo(f"{session} was {tombstone.describe()}: it was not lost")
            return
    checked, problems = run_on_journal(place, partial(_verify_sessions, session))
    for problem in problems:
        click.echo(printable_chars(problem, keep="\n"), err=True)
    if problems:
        sys.exit(UNSOUND_CODE)
    click.echo(f"{format_count(checked, 'session')}: no record was changed, moved or removed")


async def _accept_journal(journal: ManagedJournal) -> None:
    if isinstance(journal, AnchoredJournal):
        await journal.accept()


async def _find_deleted(session: str, journal: ManagedJournal) -> Tombstone | None:
    """Return what stays of a session that was deleted; None if it is there, or never was."""
    with suppress(JournalCorrupt):
        if not await journal.read(session):
            return await journal.find_tombstone(session)
    return None


async def _verify_sessions(given: str | None, journal: ManagedJournal) -> tuple[int, list[str]]:
    show_unsigned(journal)
    problems: list[str] = []
    if given is None:
        listed = await journal.sessions(limit=LISTED_MAX)
        problems += await journal.check()
    else:
        listed = [await find_session(journal, given)]
    for summary in listed:
        found = await journal.verify(summary.session)
        problems += [f"{summary.session}: {problem}" for problem in found]
    return len(listed), problems


@sessions.command(short_help="Check that this version would run a session the same way.")
@click.argument("session")
@journal_option
def replay(session: str, place: str) -> None:
    """Check that this version would run a session the same way, without a model or tools.

    The exit code is 1 if it would not; the first difference is printed. A session that was recorded
    under other rules is compared as far as possible, and the output says so.
    """
    name, facts = run_on_journal(place, partial(_read_session, session))
    again = replay_facts(name, facts)
    if again.difference is not None:
        difference = printable_chars(str(again.difference), keep="\n")
        click.echo(f"{name}: {difference}", err=True)
        sys.exit(UNSOUND_CODE)
    if again.other_rules is not None:
        click.echo(f"{name}: {again.other_rules}")
        return
    runs = again.state.run.number if again.state.run else 0
    steps = format_count(again.state.steps, "step")
    counts = f"{format_count(len(facts), 'record')}, {format_count(runs, 'run')}, {steps}"
    click.echo(f"{name}: {counts}: this version does the same")


@sessions.command(short_help="Start a new session from a record of another one.")
@click.argument("session")
@journal_option
@click.option("--at", type=click.IntRange(1), help="The last record to copy; by default, all.")
@click.option("--into", metavar="NAME", help="The name of the new session.")
def fork(session: str, place: str, at: int | None, into: str | None) -> None:
    """Start a new session with the first records of SESSION, and print its name.

    `windlass sessions explain` shows the numbers of the records.
    """

    async def copy_records(journal: ManagedJournal) -> str:
        summary = await find_session(journal, session)
        return await fork_session(journal, summary.session, at or summary.facts, into)

    click.echo(run_on_journal(place, copy_records))


@sessions.command(short_help="Write a session as lines of JSON.")
@click.argument("session")
@journal_option
@click.option("-o", "--output", default="-", metavar="FILE", help="The file; by default, stdout.")
def export(session: str, place: str, output: str) -> None:
    """Write a session as lines of JSON, with its attachments and its hashes."""

    async def write_session(journal: ManagedJournal) -> int:
        name = (await find_session(journal, session)).session
        with click.open_file(output, "wb", atomic=output != "-") as file:
            return await export_session(journal, name, file.write)

    records = run_on_journal(place, write_session)
    if output != "-":
        click.echo(f"{output}: {format_count(records, 'record')}")


@sessions.command("import", short_help="Import a session that was exported.")
@click.argument("file")
@journal_option
@click.option("--as", "into", metavar="NAME", help="Import it under another name.")
def import_(file: str, place: str, into: str | None) -> None:
    """Import a session that was exported to FILE (- is stdin), and print its name.

    Nothing is written if any part of the file was changed after the export. Answers, permissions
    and settings in the file do not count here: `windlass resume` asks about each unfinished call.
    """

    async def read_archive() -> str:
        # The archive is read twice, once to check it and once to write it; stdin cannot be.
        with click.open_file(file, "rb") as given, tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(given, copy)
            async with open_journal(place) as journal:
                return await import_session(journal, copy, into)

    click.echo(asyncio.run(read_archive()))


sessions.add_command(prune)
sessions.add_command(delete)
