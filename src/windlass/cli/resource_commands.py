"""The commands that list and delete what a journal keeps for services: tokens, quotas and so on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.session_table import show_columns
from windlass.core.text_clip import printable_chars
from windlass.project.journals import ManagedJournal
from windlass.server.owned_records import DocumentT, OwnedRecords


@dataclass(frozen=True, slots=True)
class ResourceCommands(Generic[DocumentT]):
    """One kind of document, as the command line shows it."""

    kind: str
    open_store: Callable[[ManagedJournal], OwnedRecords[DocumentT]]
    columns: Sequence[str]
    make_row: Callable[[DocumentT], Sequence[str]]
    order: Callable[[DocumentT], float] | None = None
    """By default the order of names."""

    async def read_all(self, journal: ManagedJournal) -> list[DocumentT]:
        """Return the documents of all owners."""
        found = [document async for document in self.open_store(journal).walk()]
        return found if self.order is None else sorted(found, key=self.order)

    def make_list(self, summary: str) -> click.Command:
        """Return the command that lists all documents."""

        @click.command("list", help=summary)
        @journal_option
        def list_(place: str) -> None:
            found = run_on_journal(place, self.read_all)
            show_resources(self.kind, self.columns, list(map(self.make_row, found)))

        return list_

    def make_delete(
        self, summary: str, name: str = "delete", done: str = "deleted", metavar: str = "NAME"
    ) -> click.Command:
        """Return the command that deletes a document, and says that it is `done`."""

        @click.command(name, help=summary)
        @click.argument("name", metavar=metavar)
        @journal_option
        def delete(name: str, place: str) -> None:
            run_on_journal(place, lambda journal: self.open_store(journal).delete(name))
            click.echo(f"The {self.kind} {name} is {done}.")

        return delete


def show_resources(kind: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print documents in columns, or that there are none."""
    if rows:
        show_columns([columns, *([printable_chars(cell) for cell in row] for row in rows)])
    else:
        click.echo(f"No {kind}s.")
