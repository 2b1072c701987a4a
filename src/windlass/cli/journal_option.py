"""The option that names a journal, and how a command works with the journal that it names."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from windlass.project.journals import (
    ManagedJournal,
    journal_name,
    open_existing_journal,
    open_journal,
)

T = TypeVar("T")


def _resolve_journal(_context: click.Context, _option: click.Parameter, named: str | None) -> str:
    return journal_name(named=named)


journal_option = click.option(
    "--journal",
    "place",
    metavar="NAME",
    callback=_resolve_journal,
    help="Where the sessions are kept: a path or postgresql://…; by default, as the settings say.",
)


def run_on_journal(
    place: str,
    work: Callable[[ManagedJournal], Coroutine[Any, Any, T]],
    *,
    creates: bool = False,
) -> T:
    """Do something with a journal, and return the result. It must exist, unless `creates`."""
    opens = open_journal if creates else open_existing_journal

    async def open_and_work() -> T:
        async with opens(place) as journal:
            return await work(journal)

    return asyncio.run(open_and_work())
