"""`windlass notes`: look at the notes of a store, correct them and delete them."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.cli.resource_commands import show_resources
from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.knowledge.ingestion import ingest as ingest_folder
from windlass.knowledge.memory import ID_CHARS_SHOWN
from windlass.knowledge.postgres import PostgresKnowledge
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import FoundNote, Knowledge, Note, Scope, Source

T = TypeVar("T")

COLUMNS = ("NOTE", "SCOPE", "LABELS", "FROM", "TEXT")
TEXT_CHARS_SHOWN = 100


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a store, and whose notes are meant."""
    for option in (
        click.option("--user", "users", multiple=True, metavar="NAME", help="Notes of a user."),
        click.option(
            "--project", "projects", multiple=True, metavar="NAME", help="Notes of a project."
        ),
        click.option(
            "--store",
            "place",
            required=True,
            metavar="PLACE",
            help="The SQLite file of the store, or the address of a Postgres database.",
        ),
    ):
        command = option(command)
    return command


def _read_scopes(users: Sequence[str], projects: Sequence[str]) -> list[Scope]:
    scopes = [Scope("user", name) for name in users] + [Scope("project", name) for name in projects]
    if not scopes:
        raise ConfigError("say whose notes are meant: --project NAME or --user NAME")
    return scopes


def _use_store(
    place: str, work: Callable[[Knowledge], Awaitable[T]], *, creates: bool = False
) -> T:
    """Open a store, and do something with it. `creates`: the file need not be there yet."""
    path = Path(place).expanduser()
    is_database = place.startswith(("postgres://", "postgresql://"))
    if not is_database and not creates and not path.exists():
        raise ConfigError(f"{place}: there is no such store")

    async def run() -> T:
        async with AsyncExitStack() as stack:
            if is_database:
                return await work(await stack.enter_async_context(PostgresKnowledge(place)))
            return await work(stack.enter_context(SqliteKnowledge(path)))

    return asyncio.run(run())


@click.group()
def notes() -> None:
    """List, search, add, correct and delete the notes of agents.

    A store is the file or the database that a program gives to `SqliteKnowledge` or
    `PostgresKnowledge`.
    """


@notes.command("list")
@store_options
@click.option("--limit", default=100, show_default=True, help="Maximum number of notes.")
def list_(place: str, users: tuple[str, ...], projects: tuple[str, ...], limit: int) -> None:
    """List the notes, newest first."""
    scopes = _read_scopes(users, projects)
    _show_notes(_use_store(place, lambda store: store.list_notes(scopes, limit=limit)))


@notes.command()
@click.argument("query")
@store_options
@click.option("--limit", default=8, show_default=True, help="Maximum number of notes.")
def search(
    query: str, place: str, users: tuple[str, ...], projects: tuple[str, ...], limit: int
) -> None:
    """Search the notes by their words, as an agent does."""
    scopes = _read_scopes(users, projects)
    _show_notes(_use_store(place, lambda store: store.recall(query, scopes, limit=limit)))


@notes.command()
@click.argument("text")
@store_options
@click.option("--title", default="", help="A few words to find it by.")
def add(
    text: str, place: str, users: tuple[str, ...], projects: tuple[str, ...], title: str
) -> None:
    """Store a note, for each of the users and projects."""
    stored = [Note(text, scope, _make_source(), title) for scope in _read_scopes(users, projects)]
    for note_id in _use_store(place, lambda store: store.remember(*stored), creates=True):
        click.echo(f"Kept as {note_id}.")


@notes.command()
@click.argument("note")
@click.argument("text")
@store_options
@click.option("--title", default="", help="Another title.")
def correct(
    note: str, text: str, place: str, users: tuple[str, ...], projects: tuple[str, ...], title: str
) -> None:
    """Put TEXT in place of the note with this id, or whose id begins so."""
    scopes = _read_scopes(users, projects)

    async def change(store: Knowledge) -> str | None:
        found = await _find_note(store, note, scopes)
        return await store.correct(found.id, text, _make_source(), title=title)

    click.echo(f"Corrected; it is note {_use_store(place, change)} now.")


@notes.command()
@click.argument("note")
@store_options
def forget(note: str, place: str, users: tuple[str, ...], projects: tuple[str, ...]) -> None:
    """Delete the note with this id, or whose id begins so."""
    scopes = _read_scopes(users, projects)

    async def delete(store: Knowledge) -> FoundNote:
        found = await _find_note(store, note, scopes)
        await store.forget(found.id)
        return found

    click.echo(f"Forgotten: {_shorten(_use_store(place, delete))}")


@notes.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@store_options
@click.option("--name", default="", help="Only notes whose source starts with this.")
def ingest(
    folder: str, place: str, users: tuple[str, ...], projects: tuple[str, ...], name: str
) -> None:
    """Bring the notes of a folder of documents up to date."""
    for scope in _read_scopes(users, projects):

        def take(store: Knowledge, scope: Scope = scope) -> Awaitable[Any]:
            return ingest_folder(store, folder, scope, name=name)

        report = _use_store(place, take, creates=True)
        click.echo(
            f"{scope}: {report.kept} stored, {report.unchanged} unchanged, "
            f"{report.forgotten} forgotten, {len(report.failed)} failed, "
            f"{len(report.skipped)} left out"
        )
        for path, reason in (*report.failed, *report.skipped):
            click.echo(f"  {path}: {reason}", err=True)


def _make_source() -> Source:
    return Source(session="windlass notes", call=getpass.getuser())


async def _find_note(store: Knowledge, note: str, scopes: Sequence[Scope]) -> FoundNote:
    found = await store.list_notes(scopes, note=note.casefold(), limit=2)
    if len(found) != 1:
        number = "more than one note whose id begins" if found else "no note"
        raise ConfigError(f"there is {number} {note}: windlass notes list shows the ids")
    return found[0]


def _show_notes(found: Sequence[FoundNote]) -> None:
    show_resources("note", COLUMNS, [_make_row(note) for note in found])


def _make_row(note: FoundNote) -> list[str]:
    sources = "; ".join(str(source) for source in note.sources[:2])
    labels = ",".join(sorted(note.labels))
    return [note.id[:ID_CHARS_SHOWN], str(note.scope), labels, sources, _shorten(note)]


def _shorten(note: FoundNote) -> str:
    title = f"{note.title}: " if note.title else ""
    return printable_line(title + note.text, TEXT_CHARS_SHOWN)
